"""What GitHub Actions shows of a run: a table on the job's page, and annotations at the claims' lines.

Formats: https://docs.github.com/actions/reference/workflow-commands-for-github-actions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from circuittest.report.terminal import asked_text, counts, estimate_text, sizes_text, together, verdict_text

#: A step's summary may have 1 MiB; other tools write to it, too.
MOST_BYTES = 500_000
_MARKS = {"supported": "✅", "refuted": "❌", "undecided": "❔", "invalid": "🚫", "measured": "📏"}


def summary(records: Iterable[Mapping[str, Any]]) -> str:
    """Records as a section of Markdown; rows that would not fit are counted."""
    listed = sorted(records, key=lambda record: record["id"])
    lines = [
        f"### Circuit claims: {counts(listed)}",
        "",
        "| claim | estimate | asked | n | verdict |",
        "| --- | --- | --- | --- | --- |",
    ]
    size = 0
    for i, record in enumerate(listed):
        cells = (
            record["id"],
            estimate_text(record),
            asked_text(record),
            sizes_text(record),
            f"{_MARKS.get(record['verdict'], '')} {verdict_text(record)}",
        )
        row = "| " + " | ".join(map(markdown, cells)) + " |"
        size += len(row.encode()) + 1
        if size > MOST_BYTES:
            lines += ["", f"{len(listed) - i} more claims are not shown here."]
            break
        lines.append(row)
    reasons = [
        f"- {markdown(record['id'])}: {markdown(record['reason'])}"
        for record in listed
        if record["verdict"] not in ("supported", "measured") and record["reason"]
    ]
    kept = together(listed)
    text = "\n".join([*lines, ""])
    for part in (
        "\n".join(["", *reasons, ""]) if reasons else "",
        f"\n{markdown(kept.strip())}\n" if kept else "",
    ):
        text += part if len((text + part).encode()) <= MOST_BYTES + 10_000 else ""
    return text


def markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", escape(" ".join(text.split()), quote=False))


def annotation(record: Mapping[str, Any], level: str, file: str, line: int) -> str:
    """One workflow command.

    Parameters
    ----------
    level:
        "error", "warning" or "notice".
    file:
        Path of the test or spec from the root of the repository.
    line:
        Counted from 1.
    """
    asked = asked_text(record)
    title = f"{record['claim']} {asked}".strip() + f" is {record['verdict']}"
    message = f"{record['id']}: {estimate_text(record)}"
    message += f": {record['reason']}" if record["reason"] else ""
    place = f"file={_property(file)},line={line},title={_property(title)}"
    return f"::{level} {place}::{_message(message)}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
