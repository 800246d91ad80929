"""Role: scores of a group as a claim, on heads whose scores are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuittest.circuit import prompt_digest
from circuittest.claims import claim_kind
from circuittest.errors import UsageError
from circuittest.find.roles.kinds import ROLES
from circuittest.find.roles.table import RoleTable
from circuittest.lab import Lab
from circuittest.spec import judge, load_spec
from circuittest.tasks import Example, Item, TaskData
from circuittest.units import Layout, Unit
from tests.helpers import role_heads
from tests.helpers.table_lab import TableLab


def item(index: int, prompt: tuple[int, ...], answer: int, foil: int) -> Item:
    return Item(
        index=index,
        prompt_ids=prompt,
        counterfactual_ids=prompt,
        answer_ids=(answer,),
        foil_ids=(foil,),
        counterfactual_answer_ids=(foil,),
        features={"template": index % 12},
        group="",
        example=Example(" ".join(map(str, prompt)), (f" {answer}",), (f" {foil}",), "", ("",)),
    )


def data(discover: int = 15, evaluate: int = 30, *, repeat: bool = True) -> TaskData:
    """Lists of five different numbers, the first two of them repeated; the third is the answer."""
    rng = np.random.default_rng(0)
    items = []
    for i in range(discover + evaluate):
        words = [int(w) for w in rng.permutation(np.arange(1, 16))[:5]]
        prompt = (0, *words, *(words[:2] if repeat else ()))
        items.append(item(i, prompt, words[2], words[3]))
    return TaskData(
        task="lists",
        seed=0,
        prefix=(0,),
        prefix_name="bos",
        discover=tuple(items[:discover]),
        evaluate=tuple(items[discover:]),
        dropped={},
        chance=0.0,
        accuracy="argmax",
        metric="logit_diff",
    )


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab(role_heads.build(), data())


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("induction", "L1.H0"),
        ("previous-token", "L0.H0"),
        ("copy", "L1.H2"),
        ("copy-suppression", "L1.H3"),
        ("successor", "L1.H4"),
    ],
)
def test_perfect_heads_are_supported(lab: Lab, kind: str, head: str) -> None:
    found = lab.role(lab.circuit([head], name="mine"), kind=kind)
    assert found.value == pytest.approx(1, abs=1e-6)
    verdict = found >= 0.7
    assert verdict.outcome == "supported"
    assert found.n_examples == (14 if kind == "successor" else 30)
    assert found.details["scores"] == {head: pytest.approx(1, abs=1e-6)}
    assert found.circuit.name == "mine"
    assert found.choices["role"] == kind
    assert (lab.role(lab.circuit(["L0.H2"]), kind=kind) >= 0.3).outcome == "refuted"


def test_a_group_is_the_mean_of_its_heads_or_its_least(lab: Lab) -> None:
    both = lab.circuit(["L1.H0", "L1.H1"])  # one does it, one by half
    mean, least = (lab.role(both, kind="induction", heads=heads) for heads in ("mean", "least"))
    assert mean.value == pytest.approx(0.75, abs=1e-4)
    assert least.value == pytest.approx(0.5, abs=1e-4)
    assert (mean >= 0.6).outcome == "supported"
    assert (least >= 0.6).outcome == "refuted"
    assert mean.details["others"]["best"]["score"] < 0.3


def test_kv_groups_and_layers_are_their_heads(lab: Lab) -> None:
    layer = lab.role(lab.circuit(["L1.ATTN"]), kind="self", heads="mean")
    assert layer.value == pytest.approx(3 / 8, abs=1e-4)
    assert len(layer.details["scores"]) == 8


def test_positions_are_a_choice(lab: Lab) -> None:
    found = lab.role(lab.circuit(["L1.H0"]), kind="induction", positions="answer")
    assert found.choices["role_positions"] == "answer"
    assert "role_positions" not in lab.role(lab.circuit(["L1.H2"]), kind="copy").choices
    assert lab.role(lab.circuit(["L1.H0"]), kind="answer-token").choices["role_positions"] == "answer"


@pytest.mark.parametrize(
    ("units", "how", "reason"),
    [
        ([], {}, "the circuit is empty"),
        (["L0.MLP"], {}, "L0.MLP has no attention"),
        (["embed->L0.MLP"], {}, "the circuit holds edges"),
        (["L1.H2"], {"kind": "copy", "positions": "answer"}, "copy is no pattern of attention"),
        (["L1.H4"], {"kind": "successor", "cluster": "template"}, "series of tokens, which have no clusters"),
    ],
)
def test_gates(lab: Lab, units: list[str], how: dict[str, Any], reason: str) -> None:
    found = lab.role(lab.circuit(units), **{"kind": "induction", **how})
    assert reason in found.invalid


def test_too_few_examples_with_a_score_is_invalid() -> None:
    lab = Lab(role_heads.build(), data(repeat=False))
    found = lab.role(lab.circuit(["L1.H0"]), kind="induction")
    assert found.invalid.startswith(
        "0 examples have a score for induction, 10 are needed: no token is repeated in 30"
    )
    few = Lab(role_heads.build(), replace(data(), evaluate=data().evaluate[:9]))
    assert (
        "9 examples have a score for self, 10 are needed"
        in few.role(few.circuit(["L1.H2"]), kind="self").invalid
    )


def test_heads_are_chosen_on_discovery_examples_and_judged_on_others(lab: Lab) -> None:
    chosen = lab.with_role("induction", least=0.4)
    assert [str(unit) for unit in chosen.units] == ["L1.H0", "L1.H1"]
    assert chosen.name == "induction"
    assert chosen.seen() == {prompt_digest(one.prompt_ids) for one in lab.data.discover}
    assert not lab.role(chosen, kind="induction").invalid
    assert [str(unit) for unit in lab.with_role("induction", top=1)] == ["L1.H0"]
    # the same heads, had the evaluation examples chosen them
    other = Lab(lab.model, replace(lab.data, discover=lab.data.evaluate, evaluate=()))
    assert (
        "30 of the 30 evaluation prompts chose the circuit"
        in lab.role(other.with_role("induction", least=0.4), kind="induction").invalid
    )


def test_no_head_of_a_role(lab: Lab) -> None:
    empty = lab.with_role("duplicate-token", least=1.1)
    assert empty.origin["empty"].startswith(
        "no head scores 1.1 for duplicate-token; the largest is 1.000, of L0.H3"
    )
    assert "no head scores 1.1" in lab.role(empty, kind="duplicate-token").invalid
    with pytest.raises(UsageError, match="no head has a score for 'induction': no token is repeated"):
        Lab(role_heads.build(), data(repeat=False)).with_role("induction", top=2)
    for bad in ({}, {"least": 0.4, "top": 2}, {"top": 0}):
        with pytest.raises(UsageError, match="chosen by 'least' or by 'top'"):
            lab.with_role("induction", **bad)
    with pytest.raises(UsageError, match=r"unknown role 'inductoin'\. Did you mean 'induction'"):
        lab.roles(["inductoin"])


def test_roles_are_measured_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lab.roles()
    assert tuple(first) == ROLES
    monkeypatch.setattr("circuittest.measure.attention.attention", None)
    assert lab.roles(["induction", "copy", "successor"])["copy"] is first["copy"]


class Known(TableLab):
    """A lab whose scores are drawn around known means."""

    def __init__(self, means: dict[Unit, float], seed: int) -> None:
        super().__init__(lambda units, index: 1.0, layout=Layout(2, 2, 2))
        self.means, self.draw = means, np.random.default_rng(seed)

    def roles(self, kinds: Any = None, **_: Any) -> dict[str, RoleTable]:
        heads = self.layout.units(("head",))
        n = len(self.data.evaluate)
        values = np.stack([self.draw.beta(4 * self.means[h], 4 * (1 - self.means[h]), n) for h in heads], 1)
        examples = tuple(item.index for item in self.data.evaluate)
        return {"induction": RoleTable("induction", values, heads, examples)}


def test_at_the_threshold_wrong_verdicts_are_rare() -> None:
    layout = Layout(2, 2, 2)
    means = dict(zip(layout.units(("head",)), (0.5, 0.5, 0.2, 0.9), strict=True))
    wrong = {"mean": 0, "least": 0}
    for seed in range(60):
        lab = Known(means, seed)
        group = lab.circuit(["L0.H0", "L0.H1"])
        for heads in wrong:
            verdict = lab.role(group, kind="induction", heads=heads) > 0.5
            wrong[heads] += verdict.outcome == "supported"
    assert wrong["mean"] <= 5  # 2.5 % of 60 is 1.5
    assert wrong["least"] <= 5


def test_a_spec_claims_the_role_of_a_group(lab: Lab, tmp_path: Any) -> None:
    path = tmp_path / "x.circuit.yaml"
    path.write_text(
        "circuittest: 1\nmodel: a\ntask: ioi\ngroups: {induction: [L1.H0], movers: [L1.H2]}\nclaims:\n"
        "  - role: {of: induction, kind: induction, min: 0.4}\n"
        "  - role: {of: movers, kind: copy, heads: least, above: 0.5}\n"
        "  - role: {of: movers, kind: induction, max: 0.4, id: other}\n"
    )
    spec = load_spec(path)
    verdicts = [judge(spec, claim, lab) for claim in spec.claims]
    assert [claim.id for claim in spec.claims] == ["role[induction]", "role[movers]", "other"]
    assert [verdict.outcome for verdict in verdicts] == ["supported"] * 3
    assert verdicts[0].estimate.circuit.name == "induction"
    assert claim_kind("role").takes_circuit
