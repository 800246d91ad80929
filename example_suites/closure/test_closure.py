"""Communities of heads on the zoo's induction task: what co-activation proposes, and what ablation leaves of it.

Copy this file, and name your model and task. A community is asserted as a circuit only after closure's verdict.
"""

from __future__ import annotations

from typing import Any

import pytest

from circuittest.errors import UsageError


def test_the_induction_heads_are_a_community_and_a_circuit(make_lab: Any) -> None:
    lab = make_lab("zoo:mha", "induction", discover=400, evaluate=100)
    found = lab.communities(k=8, most=1, matches=("kind",))
    (circuit,) = found.circuits
    assert [str(unit) for unit in circuit] == ["L2.H1", "L2.H5"]


@pytest.mark.circuit(model="zoo:mha", task="induction")
def test_a_proposal_is_no_circuit(lab: Any) -> None:
    found = lab.communities(k=8, judge=False)
    assert found.circuits == ()
    for community in found.communities:
        with pytest.raises(UsageError, match="is a proposal and no circuit"):
            _ = community.circuit
