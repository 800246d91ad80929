"""The claim `path` where effects are given, and every reason for not judging it; see also known_answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuittest.circuit import Circuit, prompt_digest
from circuittest.errors import CircuitError, SpecError, UnitError, UsageError
from circuittest.paths import Paths
from circuittest.spec import judge, load_spec
from circuittest.stats import InvalidClaim
from circuittest.tables import OutcomeTable
from circuittest.units import Edge, Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

Change = Callable[[frozenset[str], int], float]
GQA = Layout(n_layers=6, n_heads=8, n_kv_heads=2)
DIRECT = {"L1.H2->L3.H4.q"}


class EdgeLab(TableLab):
    """A lab whose metrics are 5 plus a change that follows from the edges that carry something else."""

    def __init__(self, change: Change, **more: Any) -> None:
        # no head left: wrong
        super().__init__(lambda units, _: float(len(units) < 10), graded=lambda *_: 5.0, **more)
        self.change = change
        self.rows: list[frozenset[str]] = []
        self.mlps: list[str] = []

    def patched(self, circuits: Sequence[Iterable[Edge]], *, keep: bool, **_: Any) -> OutcomeTable:  # type: ignore[override]
        assert not keep
        return self._table([tuple(circuit) for circuit in circuits])

    def along(self, paths: Sequence[Paths], *, mlps: str = "frozen", **_: Any) -> OutcomeTable:  # type: ignore[override]
        self.mlps.append(mlps)
        return self._table([one.edges for one in paths])

    def _table(self, sets: list[tuple[Edge, ...]]) -> OutcomeTable:
        examples = tuple(item.index for item in self.data.evaluate)
        names = [frozenset(map(str, edges)) for edges in sets]
        self.rows += names
        values = np.array([[5.0 + self.change(one, i) for i in examples] for one in names])
        return OutcomeTable(
            tuple(sets), dict.fromkeys(("logit_diff", "log_prob", "prob_diff"), values), examples
        )


def by(direct: float, whole: float, spread: float = 0.0) -> Change:
    """What patching the direct edge, and more than that, changes; the whole one alternates by `spread`."""

    def change(edges: frozenset[str], i: int) -> float:
        if not edges:
            return 0.0
        return direct if edges == DIRECT else whole + spread * (-1) ** i

    return change


def share(lab: EdgeLab, **more: Any) -> Any:
    return lab.path("L1.H2", "L3.H4.q", **more)


def test_share_of_the_total_effect() -> None:
    lab = EdgeLab(by(-1.0, -4.0, 0.5))
    found = share(lab)
    assert found.value == pytest.approx(0.25)
    assert found <= 0.5
    assert not found >= 0.5
    assert found.details["m"] == 5.0
    assert found.details["m_path"] == 4.0
    assert found.details["effect_whole"]["value"] == pytest.approx(-4)
    low, high = found.details["effect_whole"]["interval"]
    assert low < -4 < high < 0
    assert found.choices["from"] == ["L1.H2"]
    assert found.choices["to"] == ["L3.H4.q"]
    assert found.circuit is None
    total = next(row for row in lab.rows if len(row) > 1)
    assert "L1.H2->logits" in total
    assert "L1.H2->L1.MLP" in total
    assert all(edge.startswith("L1.H2->") for edge in total)


def test_share_of_what_is_received() -> None:
    lab = EdgeLab(by(-1.0, -2.0, 0.1))
    assert share(lab, share_of="received").value == pytest.approx(0.5)
    received = next(row for row in lab.rows if len(row) > 1)
    assert received == {f"L{layer}.H{head}->L3.H4.q" for layer in range(3) for head in range(8)}
    with_mlps = EdgeLab(by(-1.0, -2.0, 0.1))
    with_mlps.path(["L1.H2", "L0.MLP"], "L3.H4.q", share_of="received")
    assert any("L2.MLP->L3.H4.q" in row for row in with_mlps.rows)
    assert not any("embed->L3.H4.q" in row for row in with_mlps.rows)


@pytest.mark.parametrize(
    ("direct", "whole", "value"), [(1.0, 2.0, 0.5), (-1.0, 2.0, -0.5), (-3.0, -2.0, 1.5)]
)
def test_effects_of_either_sign_and_shares_beyond_one(direct: float, whole: float, value: float) -> None:
    found = share(EdgeLab(by(direct, whole, 0.1)))
    assert found.value == pytest.approx(value)
    assert any("below 0" in hint for hint in found.hints) == (value < 0)
    assert any("above 1" in hint for hint in found.hints) == (value > 1)


def test_an_effect_that_may_be_zero_has_no_shares() -> None:
    found = share(EdgeLab(by(-1.0, -0.1, 4.0)))
    assert "contains zero" in found.invalid
    assert "patching L1.H2 everywhere changes log_prob by -0.1" in found.invalid
    with pytest.raises(InvalidClaim):
        bool(found >= 0.1)
    assert "all that heads send to L3.H4.q" in share(EdgeLab(by(0.0, 0.0, 4.0)), share_of="received").invalid


def test_rounding_is_no_effect() -> None:
    assert "rounding" in share(EdgeLab(by(0.0, -1e-6, 1e-7))).invalid


def test_metric_and_mlps_are_choices() -> None:
    lab = EdgeLab(by(-0.1, -0.4, 0.05))
    assert share(lab).choices["metric"] == "log_prob"  # the task's
    bounded = share(lab, metric="prob_diff", mlps="recomputed")
    assert bounded.choices["metric"] == "prob_diff"
    assert bounded.value == pytest.approx(0.25)
    assert "worst-case" in bounded.choices["interval"]
    assert lab.mlps == ["frozen", "recomputed"]
    lab.__dict__["data"] = replace(lab.data, metric="kl")
    assert share(lab).choices["metric"] == "logit_diff"


def test_slots_by_id_or_for_the_whole_group() -> None:
    lab = EdgeLab(by(-1.0, -4.0, 0.5))
    group = Circuit.of(["L3.H4"], name="movers")
    for found in (lab.path("L1.H2", group, slot="q"), lab.path(["L1.H2"], ["L3.H4"], slot="q")):
        assert found.choices["to"] == ["L3.H4.q"]
        assert found.details["receivers"] == ["L3.H4.q"]
    whole = lab.path("L1.H2", group)
    assert whole.details["receivers"] == ["L3.H4.q", "L3.KV4.k", "L3.KV4.v"]


def test_pairs_without_a_path_are_said() -> None:
    lab = EdgeLab(by(-1.0, -4.0, 0.5))
    found = lab.path(["L1.H2", "L4.H0"], ["L3.H4.q", "L5.H1.q"])
    assert found.details["missing"] == ["L4.H0 to L3.H4.q"]
    assert any("1 pairs have no path" in hint for hint in found.hints)
    assert found.details["paths"] == 3


def test_clusters() -> None:
    lab = EdgeLab(by(-1.0, -4.0, 0.5))
    with pytest.raises(UsageError, match="no group"):
        share(lab, cluster="group")


@pytest.mark.parametrize(
    ("from_", "to", "error", "message"),
    [
        ("L1.H2", "L3.H4.x", UnitError, "not a unit id"),
        ("L3.H4", "L1.H2.q", UnitError, "no path runs from L3.H4 to L1.H2.q"),
        ("L1.H2", "L1.H2.q", UsageError, "in both groups"),
        (["L1.H2", "L3.H4"], "L3.H4.q", UsageError, "in both groups"),
        ([], "L3.H4.q", UsageError, "empty"),
        ("L1.H2", [], UsageError, "empty"),
        ("L1.H2", "logits.q", UnitError, "logits has no slot 'q'"),
        ("L1.H2", "L3.MLP.q", UnitError, "L3.MLP has no slot 'q'"),
        ("L1.H2.q", "L3.H4.q", UnitError, "no path starts at L1.H2.q"),
        ("L1.H2", "L9.H4.q", UnitError, "the model has no L9.H4"),
        ("L1.H2", "embed", UnitError, "embed cannot be a receiver"),
    ],
)
def test_groups_between_which_nothing_can_run(
    from_: Any, to: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        EdgeLab(by(-1.0, -4.0)).path(from_, to)


def test_heads_that_share_keys_are_named_by_their_group() -> None:
    lab = EdgeLab(by(-1.0, -4.0, 0.5), layout=GQA)
    with pytest.raises(UnitError, match=r"shares those of L3.KV1 with L3.H5, L3.H6, L3.H7.*L3.KV1.v"):
        lab.path("L1.H2", "L3.H4.v")
    assert lab.path("L1.H2", "L3.KV1.v").details["receivers"] == ["L3.KV1.v"]


def test_a_group_chosen_on_evaluation_examples_is_not_judged() -> None:
    lab = EdgeLab(by(-1.0, -4.0, 0.5))
    seen = [prompt_digest(item.prompt_ids) for item in lab.data.evaluate[:2]]
    chosen = Circuit.of(["L1.H2"], origin={"prompts": seen})
    found = lab.path(chosen, "L3.H4.q")
    assert "2 of the 60 evaluation prompts chose the group that sends" in found.invalid
    receiving = lab.path("L1.H2", Circuit.of(["L3.H4"], origin={"prompts": seen}), slot="q")
    assert "chose the group that receives" in receiving.invalid


def test_a_circuit_of_another_architecture_is_refused() -> None:
    elsewhere = Circuit.of(["L1.H2"], layout=GQA)
    with pytest.raises(CircuitError, match="another architecture"):
        EdgeLab(by(-1.0, -4.0, 0.5)).path(elsewhere, "L3.H4.q")


def test_a_task_without_counterfactuals_has_no_paths() -> None:
    data = task_data()
    same = tuple(replace(item, counterfactual_ids=item.prompt_ids) for item in data.evaluate)
    lab = EdgeLab(by(-1.0, -4.0, 0.5), data=replace(data, evaluate=same))
    assert "60 of the 60 evaluation examples have no counterfactual prompt" in share(lab).invalid


def test_a_model_that_cannot_do_the_task() -> None:
    lab = EdgeLab(by(-1.0, -4.0, 0.5))
    lab.rule = lambda *_: 0.0
    assert "floor" in share(lab).invalid
    assert lab.how[-1]["value"] == "counterfactual"


def write(tmp_path: Path, claim: str) -> Path:
    path = tmp_path / "a.circuit.yaml"
    path.write_text(
        "circuittest: 1\nmodel: zoo:mha\ntask: ioi\n"
        "groups: {induction: [L1.H2], movers: [L3.H4]}\n"
        f"claims:\n  - path: {claim}\n"
    )
    return path


def test_a_spec_names_groups_and_slots(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path, "{from: induction, to: movers.q, min: 0.2}"))
    verdict = judge(spec, spec.claims[0], EdgeLab(by(-1.0, -4.0, 0.01)))
    assert verdict
    assert verdict.estimate.choices["to"] == ["L3.H4.q"]


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ("{from: induction, to: mover.q, min: 0.2}", "no group 'mover'"),
        ("{from: induction, min: 0.2}", "'to'"),
        ("{from: induction, to: movers.q}", "no threshold"),
        ("{from: induction, to: movers.q, share_of: all, min: 0.2}", "share_of"),
        ("{from: induction, to: movers.q, share: {min: 0.2}}", "share"),
    ],
)
def test_what_a_spec_may_not_say(tmp_path: Path, claim: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_spec(write(tmp_path, claim))


def test_the_place_of_a_path_that_cannot_be(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path, "{from: movers, to: induction.q, min: 0.2}"))
    with pytest.raises(SpecError, match=r"no path runs from L3.H4 to L1.H2.q.*Exchange the groups") as caught:
        judge(spec, spec.claims[0], EdgeLab(by(-1.0, -4.0)))
    assert caught.value.line == 6


def test_units_are_written_in_the_record_in_order() -> None:
    found = EdgeLab(by(-1.0, -4.0, 0.5)).path([Unit("mlp", 1), "L1.H2"], ["logits", "L3.H4.q"])
    assert found.details["senders"] == ["L1.H2", "L1.MLP"]
    assert found.choices["to"] == ["L3.H4.q", "logits"]
