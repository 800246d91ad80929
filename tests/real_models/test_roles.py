"""Roles of real heads: found by their scores, judged on other examples, and needed far more than random heads.

SmolLM2-135M, and Gemma-3-270M where its terms are accepted; minutes each. Skipped, with the reason, where the weights
cannot be had. docs/roles.md has the numbers of one run.
"""

from __future__ import annotations

from statistics import fmean, median
from typing import Any

import pytest

from tests.helpers.real import file_of, measured_apart

pytestmark = [pytest.mark.real_model, pytest.mark.slow, pytest.mark.timeout(7200)]

#: The heads with the largest scores on lists, by role, and those that copy the answer on IOI.
KNOWN: dict[str, dict[str, set[str]]] = {
    "smollm2": {
        "induction": {"L17.H4", "L18.H6"},
        "previous-token": {"L11.H1", "L16.H0"},
        "name movers": {"L23.H0", "L23.H1"},
    },
    "gemma3": {"induction": {"L5.H1", "L5.H2"}, "previous-token": {"L2.H3", "L4.H1"}, "name movers": set()},
}


@pytest.fixture(scope="module", params=list(KNOWN))
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    file = file_of(request.param)
    if isinstance(file, str):
        pytest.skip(file)
    return {"known": KNOWN[request.param], **measured_apart(request.param, "tests.helpers.roles_of")}


def test_known_heads_score_highest(found: dict[str, Any]) -> None:
    lists = found["scores"]["induction"]
    for kind in ("induction", "previous-token"):
        assert set(list(lists[kind])[:2]) == found["known"][kind]
    assert found["known"]["name movers"] <= set(found["name movers"])


def test_roles_hold_on_other_examples(found: dict[str, Any]) -> None:
    for kind in ("induction", "previous-token"):
        low, _ = found["role"][kind]["interval"]
        assert low > 0.4
        assert found["role"][kind]["others"]["mean"] < 0.15


@pytest.mark.parametrize("controls", ["induction", "induction, same layers"])
def test_induction_heads_are_needed_far_more_than_matched_controls(
    found: dict[str, Any], controls: str
) -> None:
    """In accuracy and log-probability; beside sets of any layer, of which a few break the model, and of the same."""
    part = found["closure"][controls]
    assert part["beyond"][1] > 0
    for measure in ("argmax", "log_prob"):
        damage = part["damage"][measure]
        assert damage["circuit"] > 3 * max(fmean(damage["controls"]), median(damage["controls"]), 0.05)
