"""Exit codes of `circuittest check`: 0 all supported, 1 a claim refuted, 2 bad usage or bad spec, 3 the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SUPPORTED, REFUTED, BAD_USAGE, OPEN = 0, 1, 2, 3


def exit_code(records: Iterable[Mapping[str, Any]]) -> int:
    """The exit code that records of judged claims amount to.

    1 when a claim is refuted; else 3 when one is undecided or invalid; else 0. Records of the outcome "skipped" are
    passed over (`--circuit-undecided=skip` asked for that), and so are those of the outcome "xfailed", which were
    expected, and estimates that nobody judged.
    """
    verdicts = {record["verdict"] for record in records if record["outcome"] not in ("skipped", "xfailed")}
    if "refuted" in verdicts:
        return REFUTED
    return OPEN if verdicts & {"undecided", "invalid"} else SUPPORTED
