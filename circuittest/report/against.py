"""What speaks against a claim (`details.driven_by`), as a part of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from circuittest.report.plot import is_number
from circuittest.report.svg import number


def against(record: Mapping[str, Any]) -> str:
    """The examples or pairs of subtasks as a table, and what they are compared with; "" where there are none."""
    driven = record["details"].get("driven_by")
    if not isinstance(driven, Mapping):
        return ""
    said = "".join(
        f"<p>{escape(title)}: {escape(str(driven[key]))}</p>"
        for key, title in (("control", "Control"), ("units", "Units"))
        if driven.get(key)
    )
    examples = [one for one in driven.get("examples") or () if isinstance(one, Mapping)]
    pairs = [one for one in driven.get("pairs") or () if isinstance(one, Mapping)]
    if examples:
        extra = [key for key in ("after", "missing") if any(key in one for one in examples)]
        head = ("example", "pull", "prompt and answer", "next tokens", *(_HEADINGS[key] for key in extra))
        table = _table(head, [_example(one, extra) for one in examples])
    elif pairs:
        table = _table(("subtasks", "similarity", "prompts"), [_pair(one) for one in pairs])
    else:
        table = ""
    return f'<section class="against"><h4>What speaks against it</h4>{said}{table}</section>'


_HEADINGS = {"after": "next tokens after", "missing": "of its circuit, not shared"}


def _example(one: Mapping[str, Any], extra: Sequence[str]) -> list[str]:
    answers = ", ".join(f"<b>{escape(str(answer))}</b>" for answer in one.get("answers") or ())
    cells = [
        escape(str(one.get("index", ""))),
        escape(number(one["pull"]) if is_number(one.get("pull")) else ""),
        f"{escape(str(one.get('prompt', '')))} → {answers}",
        _likely(one.get("before")),
    ]
    for key in extra:
        cells.append(_likely(one.get(key)) if key == "after" else escape(", ".join(one.get(key) or ())))
    return cells


def _pair(one: Mapping[str, Any]) -> list[str]:
    similarity = one.get("similarity")
    return [
        " and ".join(escape(str(name)) for name in one.get("subtasks") or ()),
        escape(number(similarity)) if is_number(similarity) else "",
        "<br>".join(escape(str(prompt)) for prompt in one.get("prompts") or () if prompt),
    ]


def _likely(found: Any) -> str:
    rows = [row for row in found or () if isinstance(row, (list, tuple)) and len(row) == 2]
    return "<br>".join(f"{escape(str(token))} {share:.0%}" for token, share in rows if is_number(share))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)
    lines = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="What speaks against it"><table><thead><tr>'
        f"{titles}</tr></thead><tbody>{lines}</tbody></table></div>"
    )
