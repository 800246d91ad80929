"""Roles of SmolLM2's heads: found by their scores, judged on other examples, and needed far more than random heads.

Minutes of CPU. Skipped, with the reason, where the weights cannot be had. docs/roles.md has the numbers of one run.
"""

from __future__ import annotations

from statistics import fmean, median
from typing import Any

import pytest

from tests.helpers.real import file_of, measured_apart

pytestmark = [pytest.mark.real_model, pytest.mark.slow, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    file = file_of("smollm2")
    if isinstance(file, str):
        pytest.skip(file)
    return dict(measured_apart("smollm2", "tests.helpers.roles_of"))


def test_known_heads_score_highest(found: dict[str, Any]) -> None:
    lists, ioi = found["scores"]["induction"], found["scores"]["ioi"]
    assert set(list(lists["induction"])[:2]) == {"L17.H4", "L18.H6"}
    assert set(list(lists["previous-token"])[:2]) == {"L11.H1", "L16.H0"}
    assert ioi["answer-token"]["L24.H4"] > 0.6
    assert ioi["copy-suppression"]["L24.H4"] > 0.9
    assert {"L23.H0", "L23.H1"} <= set(found["name movers"])


def test_roles_hold_on_other_examples(found: dict[str, Any]) -> None:
    for kind in ("induction", "previous-token"):
        low, _ = found["role"][kind]["interval"]
        assert low > 0.4
        assert found["role"][kind]["others"]["mean"] < 0.15


def test_induction_heads_are_needed_far_more_than_matched_controls(found: dict[str, Any]) -> None:
    """In accuracy and log-probability, beside random sets of heads, of which a few break the model."""
    part = found["closure"]["induction"]
    assert part["beyond"][1] > 0
    for measure in ("argmax", "log_prob"):
        damage = part["damage"][measure]
        assert damage["circuit"] > 3 * max(fmean(damage["controls"]), median(damage["controls"]), 0.05)
