"""docs/licences.md lists every package that an installation asks for, with a licence."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_direct_dependency_has_a_licence():
    rows = re.findall(
        r"^\| (\S+) \| (.+?) \| ", (ROOT / "docs/licences.md").read_text(encoding="utf-8"), re.M
    )
    listed = dict(rows)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    wanted = {
        re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9._-]+", text)[0]).lower()
        for name, texts in groups.items()
        if name not in ("dev", "docs")
        for text in texts
    }
    assert wanted <= set(listed), wanted - set(listed)
    assert not [
        name for name, text in listed.items() if text in ("not installed here", "see the package", "")
    ]
