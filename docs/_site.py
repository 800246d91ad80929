"""MkDocs hooks: pages of the site that lie outside docs/, and the pages of claims and of the schema.

The README, CONTRIBUTING, the changelog and the example suites' READMEs are pages under project/. Links are written for
a checkout, so they are led to the page that a file became; links to files that are no pages keep only their text. A
link to something that does not exist is left as it is, and strict mode refuses it.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from circuittest.claims import _BUILT_IN
from circuittest.spec.json_schema import json_schema

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def outside() -> list[str]:
    """Pages outside docs/, as paths in the checkout."""
    suites = sorted(ROOT.glob("example_suites/*/README.md"))
    return ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(p.relative_to(ROOT).as_posix() for p in suites)]


def claims() -> str:
    """Signature and docstring of every claim, as they stand in the source: reading it needs no torch."""
    parts = [
        "# Claims",
        "What each means and does not mean is in [claims.md](../claims.md). In specs, keyword options are keys.",
    ]
    for name, module in sorted(_BUILT_IN.items()):
        tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        (found,) = (
            n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name.replace(".", "_")
        )
        text = ast.get_docstring(found) or ""
        found.body = [ast.Expr(ast.Constant(...))]
        parts += [f"## {name}", f"```python\n{ast.unparse(found)}\n```", f"```text\n{text}\n```"]
    return "\n\n".join(parts) + "\n"


def on_files(files: Files, config: Any) -> Files:
    """Add the pages, with the pictures beside them."""
    for path in outside():
        files.append(File.generated(config, f"project/{path}", abs_src_path=str(ROOT / path)))
        for picture in sorted((ROOT / path).parent.glob("*.svg")):
            name = picture.relative_to(ROOT).as_posix()
            files.append(File.generated(config, f"project/{name}", abs_src_path=str(picture)))
    schema = json.dumps(json_schema(), indent=2, ensure_ascii=False)
    text = f"# Spec schema\n\nWhat `circuittest schema` prints.\n\n```json\n{schema}\n```\n"
    files.append(File.generated(config, "reference/schema.md", content=text))
    files.append(File.generated(config, "reference/claims.md", content=claims()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links from place to place in the checkout to the pages there."""
    here = page.file.src_uri
    source = here.removeprefix("project/") if here.startswith("project/") else f"docs/{here}"
    pages = outside()

    def led(match: re.Match[str]) -> str:
        text, target = match.groups()
        path, mark, anchor = target.partition("#")
        if not path or "://" in target:
            return match[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if f"{there}/README.md" in pages:
            there += "/README.md"
        if there in pages:
            address = f"project/{there}"
        elif there.startswith("docs/"):
            address = there.removeprefix("docs/")
        elif (ROOT / there).exists():
            return text
        else:
            return match[0]
        return f"[{text}]({posixpath.relpath(address, posixpath.dirname(here) or '.')}{mark}{anchor})"

    return LINK.sub(led, markdown)
