"""Groups of a spec: claims are about them, and options of claims refer to them."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from circuittest.circuit import Circuit
from circuittest.claims import ClaimKind
from circuittest.claims.groups import Group, Member, referenced
from circuittest.errors import SpecError, UnitError, UsageError
from circuittest.spec import judge, load_spec
from circuittest.spec.json_schema import json_schema
from circuittest.stats import Estimate, ProportionInference
from circuittest.units import Layout, Unit

SPEC = """\
circuittest: 1
model: a
task: ioi
groups: {movers: [L2.H1, L1.H3], early: [L0.H0]}
claims:
  - runs: {from: early, to: movers.q, min: 0.5}
"""


def runs(lab, *, from_: Group, to: Group, over: Group | None = None, share: float = 1.0):
    """A claim from one group to another."""


class Recorded:
    layout = Layout(3, 4, 2)

    def __init__(self):
        self.calls = []

    def measure(self, claim, circuit, *, decide=None, **options):
        self.calls.append((claim, circuit, decide, options))
        inference = ProportionInference(150, 200)
        return Estimate(claim=claim, value=0.75, inference=inference, n_examples=200, decide=decide)


@pytest.fixture
def load(tmp_path, monkeypatch):
    kind = ClaimKind("runs", runs)
    monkeypatch.setattr("circuittest.claims.claim_kinds", lambda: {"runs": kind})
    monkeypatch.setattr("circuittest.spec.json_schema.claim_kinds", lambda: {"runs": kind})

    def load(text):
        path = tmp_path / "x.circuit.yaml"
        path.write_text(text)
        return load_spec(path, name="x.circuit.yaml")

    return load


def test_options_refer_to_groups_by_name_with_a_slot(load):
    spec, lab = load(SPEC), Recorded()
    (claim,) = spec.claims
    assert claim.id == "runs[early,movers.q]"
    assert judge(spec, claim, lab).outcome == "supported"
    ((_, circuit, decide, options),) = lab.calls
    assert (circuit, decide) == (None, 0.5)
    heads = [Unit("head", 1, 3), Unit("head", 2, 1)]
    assert options == {
        "from_": Group("early", (Member(Unit("head", 0, 0)),)),
        "to": Group("movers.q", tuple(Member(head, "q") for head in heads)),
    }


def test_options_may_list_units_instead(load):
    spec = load(SPEC.replace("to: movers.q", "to: [L2.KV1.k, L1.MLP], over: logits"))
    options = spec.claims[0].options
    assert options["to"].members == (Member(Unit("mlp", 1)), Member(Unit("kv", 2, 1), "k"))
    assert str(options["to"]) == "L1.MLP, L2.KV1.k"
    assert options["over"].units == (Unit("logits"),)
    assert spec.claims[0].id == "runs[early,logits]"


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "message"),
    [
        ("to: movers.q", "to: mover.q", 6, 29, "no group 'mover': it is no unit id either. Did you mean 'movers'?"),
        ("to: movers.q", "to: [L2.H1, mover]", 6, 37, "no group 'mover'"),
        ("to: movers.q", "to: [L2.H1, L2.X]", 6, 37, "not a unit id: 'L2.X'"),
        ("to: movers.q", "to: L2.MLP.q", 6, 29, "L2.MLP has no slot 'q'"),
        ("to: movers.q", "to: movers.x", 6, 29, "no group 'movers.x'"),
        ("to: movers.q", "to: 3", 6, 29, "'to' of the claim runs is 3: it must be text or a list"),
        ("to: movers.q", "to: []", 6, 29, "'to' of the claim runs is []"),
        ("to: movers.q, ", "", 6, 11, "the key 'to' is missing in the claim runs"),
        ("from: early", "form: early", 6, 12, "unknown key 'form' in the claim runs. Did you mean 'from'?"),
        ("early: [L0.H0]", "logits: [L0.H0]", 4, 34, "'logits' cannot name a group: it is a unit"),
        ("early: [L0.H0]", "early: [L0.H0->L1.H1.q]", 6, 18, "early holds edges"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(load, old, new, line, column, message):
    assert SPEC.count(old) == 1
    with pytest.raises(SpecError) as caught:
        load(SPEC.replace(old, new))
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    ("old", "new", "line", "column"),
    [
        ("L2.H1, L1.H3", "L2.H1, L1.H4", 4, 26),
        ("to: movers.q", "to: [L0.H1, L7.H1.q]", 6, 37),
        ("to: movers.q", "to: L7.H1.q", 6, 29),
    ],
)
def test_units_that_the_model_lacks_are_told_with_their_place(load, old, new, line, column):
    spec = load(SPEC.replace(old, new))
    with pytest.raises(SpecError, match="the model has no L") as caught:
        judge(spec, spec.claims[0], Recorded())
    assert (caught.value.line, caught.value.column) == (line, column)


def test_two_claims_about_the_same_groups_need_ids(load):
    with pytest.raises(SpecError, match=r"the id 'runs\[early,movers.q\]' is taken"):
        load(SPEC + "  - runs: {from: early, to: movers.q, max: 0.9}\n")


def test_the_schema_for_editors_takes_names_and_lists(load):
    load(SPEC)
    validator = jsonschema.Draft202012Validator(json_schema())
    good = json.loads(json.dumps(yaml.safe_load(SPEC)))
    validator.validate(good)
    good["claims"][0]["runs"]["to"] = ["L1.H1.q"]
    validator.validate(good)
    good["claims"][0]["runs"]["from_"] = "early"
    assert not validator.is_valid(good)
    del good["claims"][0]["runs"]["from_"]
    good["claims"][0]["runs"]["to"] = 3
    assert not validator.is_valid(good)


def test_groups_in_python():
    circuit = Circuit.of(["L1.H1", "L0.MLP"], name="mine")
    assert Group.of(circuit) == Group("mine", (Member(Unit("mlp", 0)), Member(Unit("head", 1, 1))))
    assert Group.of("L1.H1.q") == Group("L1.H1.q", (Member(Unit("head", 1, 1), "q"),))
    both = Group.of(["L1.H1.q", Unit("head", 1, 1), Member(Unit("head", 0, 2), "k"), "L1.H1.q"])
    assert str(both) == "L0.H2.k, L1.H1, L1.H1.q"
    assert both.units == (Unit("head", 0, 2), Unit("head", 1, 1))
    assert Group.of(both) is both
    assert referenced("mine.v", {"mine": Circuit.of(["L1.H1"])}).members[0].slot == "v"
    with pytest.raises(UsageError, match="a group is empty"):
        Group.of([])
    with pytest.raises(UsageError, match="holds edges"):
        Group.of(Circuit.of(["embed->L0.MLP"]))
    with pytest.raises(UnitError, match="logits has no slot 'q'"):
        Group.of("logits.q")
    with pytest.raises(UnitError, match="L0.MLP has no slot 'v'"):
        referenced("mine.v", {"mine": circuit})
