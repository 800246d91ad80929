"""Communities of a lab: split A proposes, closure on split B disposes; each verdict where it is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.lab.judging import needed_controls
from circuittest.measure.signals import Signals
from circuittest.tables import OutcomeTable, ScoreTable
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

LAYOUT = Layout(n_layers=6, n_heads=8, n_kv_heads=8)
HEADS = LAYOUT.units(("head",))
#: Each group is co-active. The task needs one, another works against it, the third does nothing.
NEEDED, HARMFUL, IDLE = (
    tuple(Unit("head", layer, index) for layer, index in places)
    for places in (
        ((1, 0), (2, 3), (3, 5), (4, 1)),
        ((1, 2), (2, 6), (3, 0), (5, 7)),
        ((0, 4), (2, 1), (4, 4), (5, 2)),
    )
)
GROUPS = (NEEDED, HARMFUL, IDLE)


#: A fixed number for each example, and for each head on each example.
NOISE = 0.2 * np.random.default_rng(7).uniform(-1, 1, 400)
OF_HEADS = 0.01 * np.random.default_rng(8).uniform(-1, 1, (48, 400))


class SignalLab(TableLab):
    """A lab without a model whose heads' signals are drawn: groups share a cause, others have none."""

    def __init__(self, *, loading: float = 1.5, groups: tuple[Any, ...] = GROUPS, **more: Any) -> None:
        more = {"data": task_data(240, 60), **more}
        super().__init__(lambda *_: 0.0, layout=LAYOUT, **more)
        self.loading, self.groups = loading, groups

    def signals(self, split: str = "discover", *, sink: bool = True) -> Signals:  # type: ignore[override]
        items = getattr(self.data, split)
        rng = np.random.default_rng(len(items))
        values = rng.standard_normal((len(items), len(HEADS)))
        for group in self.groups:
            columns = [HEADS.index(unit) for unit in group]
            values[:, columns] += self.loading * rng.standard_normal((len(items), 1))
        examples = tuple(item.index for item in items)
        rest = np.tile(np.linspace(0, 1, len(HEADS))[::-1].reshape(8, 6).T.ravel(), (len(items), 1))
        table = lambda array: ScoreTable(array.astype(np.float32), HEADS, examples)
        return Signals(table(values), table(rest))

    def outcomes(self, sets: Any, **_: Any) -> OutcomeTable:  # type: ignore[override]
        """About 4 to 0: what is needed is there while half of its heads are, what is harmful takes a bit each."""
        named = tuple(tuple(sorted(set(units))) for units in sets)
        member = np.array([[unit in units for unit in HEADS] for units in map(frozenset, named)], dtype=float)
        needed, harmful = (
            member[:, [HEADS.index(unit) for unit in group]].sum(1) for group in (NEEDED, HARMFUL)
        )
        examples = tuple(item.index for item in self.data.evaluate)
        level = np.where(member.all(1), 0.0, 4.0 - 4.0 * (needed > 2) + 0.5 * harmful)
        graded = level[:, None] + NOISE[list(examples)] + member @ OF_HEADS[:, list(examples)]
        right = (graded > 2).astype(float)
        columns = {"argmax": right, "candidates": right, "log_prob": graded, "logit_diff": graded}
        return OutcomeTable(named, columns, examples)


def by_units(found: Any) -> dict[frozenset[Unit], Any]:
    return {frozenset(one.units): one for one in found.communities}


def test_each_group_is_proposed_and_gets_its_verdict() -> None:
    found = SignalLab().communities(k=(6, 8, 10), most=3, matches=("layer",))
    communities = by_units(found)
    assert {frozenset(group) for group in GROUPS} <= set(communities)
    assert communities[frozenset(NEEDED)].verdict == "load-bearing"
    assert communities[frozenset(HARMFUL)].verdict == "interfering"
    assert communities[frozenset(IDLE)].verdict in ("none", "undecided")
    (circuit,) = found.circuits
    assert circuit.units == tuple(sorted(NEEDED))
    assert circuit.origin["method"] == "co-activation"
    assert len(circuit.seen()) == 240
    with pytest.raises(UsageError, match="is interfering and no circuit: layer-matched: improvement"):
        communities[frozenset(HARMFUL)].circuit
    others = [one for one in found.communities if frozenset(one.units) not in map(frozenset, GROUPS)]
    assert others
    for other in others:
        assert other.verdict == "proposed"
        with pytest.raises(UsageError, match="is a proposal and no circuit"):
            other.circuit
    assert found.chosen == "stability"
    assert set(found.scores) == {6, 8, 10}


@pytest.mark.slow
def test_verdicts_are_corrected_for_the_communities_judged() -> None:
    found = SignalLab().communities(k=8, most=3)
    judged = [one.judgement for one in found.communities if one.judgement]
    assert len(judged) == 3
    for name in ("load-bearing", "interfering", "none"):
        raw, adjusted = (
            sorted(one[name] for one in values)
            for values in ([j.p for j in judged], [j.adjusted for j in judged])
        )
        assert adjusted[0] == pytest.approx(min(1.0, 3 * raw[0]))
    assert {match for j in judged for match in j.closures} == {"layer", "sink"}
    for one in judged:
        for estimate in one.closures.values():
            assert set(estimate.examples["discover"]).isdisjoint(estimate.examples["evaluate"])


def test_too_few_controls_for_the_correction_leave_it_undecided() -> None:
    found = by_units(SignalLab().communities(k=8, most=3, controls=60))
    verdict = found[frozenset(NEEDED)].judgement
    assert verdict.verdict == "undecided"
    assert "load-bearing before, but not after Holm's correction" in verdict.reason or "rank p cannot" in str(
        verdict.closures["layer"].labels["load-bearing"].reason
    )


class OneHeadLab(SignalLab):
    """The same signals; one head does it all, and it is in one of the groups by chance."""

    def outcomes(self, sets: Any, **_: Any) -> OutcomeTable:
        named = tuple(tuple(sorted(set(units))) for units in sets)
        examples = [item.index for item in self.data.evaluate]
        member = np.array([[unit in units for unit in HEADS] for units in map(frozenset, named)], dtype=float)
        graded = 4.0 + NOISE[examples] - member @ (OF_HEADS[:, examples] + 0.02)
        graded -= 3.0 * member[:, [HEADS.index(NEEDED[0])]]
        right = (graded > 2).astype(float)
        columns = {"argmax": right, "candidates": right, "log_prob": graded, "logit_diff": graded}
        return OutcomeTable(named, columns, tuple(examples))


def test_a_set_that_holds_the_one_head_that_counts_is_no_community() -> None:
    """Any set of four has a chance of 4/48 to hold it, and is then more harmful than every set outside."""
    found = by_units(OneHeadLab().communities(k=8, most=3, matches=("kind",)))
    judgement = found[frozenset(NEEDED)].judgement
    assert judgement.closures["kind"].label == "load-bearing"
    assert judgement.random["kind"] == pytest.approx(4 / 48, abs=0.05)
    assert judgement.p["load-bearing"] == judgement.random["kind"]
    assert judgement.verdict == "undecided"
    assert "load-bearing before, but not among random sets" in judgement.reason


def test_isolation_repeats_elsewhere_for_groups() -> None:
    found = by_units(SignalLab().communities(k=8, judge=False))
    for group in GROUPS:
        one = found[frozenset(group)]
        assert one.p["kind"] <= 0.01
        assert one.isolation_elsewhere > 1.5
        assert one.verdict == "proposed"


def test_sizes_that_cannot_be_judged_say_so() -> None:
    found = SignalLab().communities(k=8, smallest=5, largest=5, matches=("kind",))
    for one in found.communities:
        if len(one.units) != 5:
            assert one.judgement is None
            assert f"{len(one.units)} heads, " in one.unjudged


def test_labels_choose_k_and_give_purity() -> None:
    labels = dict.fromkeys(NEEDED, "needed") | {str(unit): "harmful" for unit in HARMFUL}
    found = SignalLab().communities(k=(8, 10), labels=labels, judge=False)
    assert found.chosen == "labels"
    assert found.against_labels["ari"] == 1.0
    one = by_units(found)[frozenset(NEEDED)]
    assert (one.purity, one.label) == (1.0, "needed")
    assert by_units(found)[frozenset(IDLE)].purity is None
    with pytest.raises(UsageError, match="a label for L9.H0"):
        SignalLab().communities(labels={"L9.H0": "induction"}, judge=False)


def test_independent_heads_give_no_proposal_or_none_that_passes() -> None:
    passed = 0
    for size in range(120, 126):
        found = SignalLab(groups=(), data=task_data(size, 60)).communities(
            k=8, matches=("kind",), controls=60
        )
        passed += len(found.circuits)
        if found.reason:
            assert "no couplings" in found.reason
            assert found.communities == ()
    assert passed <= 1  # each of six labs passes one with probability at most 0.025


@pytest.mark.parametrize("how", [{}, {"strength": 1.0}])
def test_a_lasso_that_leaves_no_coupling_gives_no_proposal(how: dict[str, float]) -> None:
    found = SignalLab(groups=()).communities(penalty="l1", judge=False, **how)
    assert found.communities == ()
    assert found.reason.startswith("no couplings")
    assert set(found.structure.left_out) == set(HEADS)


def test_fewer_heads_than_clusters_and_unknown_options_are_refused() -> None:
    with pytest.raises(
        UsageError, match="60 clusters of 48 heads that vary: there are fewer heads than clusters"
    ):
        SignalLab().communities(k=60, judge=False)
    with pytest.raises(UsageError, match="fewer than two heads for each cluster"):
        SignalLab().communities(k=(30, 40), judge=False)
    with pytest.raises(UsageError, match="no option 'penality'. Did you mean 'penalty'"):
        SignalLab().communities(penality="l1")
    with pytest.raises(UsageError, match="matched by \\['depth'\\]"):
        SignalLab().communities(matches=("depth",))
    with pytest.raises(UsageError, match="stratum 1 of no routes"):
        SignalLab().communities(stratum=1)


def test_needed_controls_let_the_smallest_rank_count() -> None:
    from circuittest.claims.beyond import exchangeable_p

    for communities, share in ((1, 0.0), (4, 0.05), (2, 0.2)):
        count = needed_controls(communities, share)
        assert communities * exchangeable_p(1 / (count + 1), share) <= 0.025
    assert needed_controls(50, 0.3) == 1000
