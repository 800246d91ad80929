"""Judging a claim of a spec: what reaches the lab, and where the file is wrong for this model."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from circuittest.circuit import Circuit
from circuittest.claims import ClaimKind, labels
from circuittest.errors import LoadError, SpecError, TaskError, UsageError
from circuittest.spec import judge, load_spec
from circuittest.stats import Estimate, ProportionInference
from circuittest.stats.labels import Label
from circuittest.units import Layout

HEAD = "circuittest: 1\nmodel: a\ntask:\n  name: ioi\n"


class Recorded:
    """A lab that writes down what it is asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.layout = Layout(3, 4, 2)
        self.error = error
        self.calls: list[tuple] = []

    def shared(self, **options):
        if isinstance(self.error, TaskError):
            raise self.error
        self.calls.append(("shared", options))
        return Circuit.of(["L1.H1"], layout=self.layout)

    def circuit(self, source):
        self.calls.append(("circuit", source))
        return Circuit(source.units, source.edges, source.name, self.layout)

    def measure(self, claim, circuit, *, decide=None, **options):
        if self.error:
            raise self.error
        self.calls.append((claim, circuit, decide, options))
        inference = ProportionInference(150, 200)
        return Estimate(claim=claim, value=0.75, inference=inference, n_examples=200, decide=decide)


@pytest.fixture
def judged(tmp_path):
    def judged(text, lab):
        path = tmp_path / "x.circuit.yaml"
        path.write_text(HEAD + text)
        spec = load_spec(path, name="x.circuit.yaml")
        return [judge(spec, claim, lab) for claim in spec.claims]

    return judged


def test_a_minimal_circuit_is_asked_for_by_its_options(judged):
    class Searches(Recorded):
        def minimal(self, **options):
            self.calls.append(("minimal", options))
            return SimpleNamespace(circuit=Circuit.of(["L0.H1->logits"]), units=Circuit.of(["L0.H1"]))

    for level, members in (("", ["L0.H1"]), (", level: edges", ["L0.H1->logits"])):
        lab = Searches()
        judged(f"circuit: {{method: minimal, cap: 2%{level}}}\nclaims:\n  - necessity: {{min: 0.3}}\n", lab)
        assert lab.calls[0] == ("minimal", {"faithfulness": 0.8, "cap": "2%"})
        assert lab.calls[1][1] == Circuit.of(members)


def test_the_lab_is_asked_for_circuit_claim_options_and_threshold(judged):
    lab = Recorded()
    verdicts = judged(
        "circuit: {top: 10%}\ngroups: {g: [L0.H1]}\nclaims:\n"
        "  - necessity: {min: 0.3, controls: 7}\n  - coverage: {of: g, below: 0.5}\n",
        lab,
    )
    assert [(v.outcome, v.op, v.threshold) for v in verdicts] == [
        ("supported", ">=", 0.3),
        ("refuted", "<", 0.5),
    ]
    recipe = {"method": "eap", "universe": "heads", "top": "10%", "at": 95, "score": "edge-abs-sum"}
    assert lab.calls == [
        ("shared", recipe),
        ("necessity", Circuit.of(["L1.H1"]), 0.3, {"controls": 7}),
        ("circuit", Circuit.of(["L0.H1"])),
        ("coverage", Circuit.of(["L0.H1"]), 0.5, {}),
    ]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        (
            "circuit:\n  units: [L0.H1, L3.H0]\nclaims: [necessity: {min: 0}]\n",
            6,
            18,
            "the model has no L3.H0",
        ),
        ("groups:\n  g: [L0.KV7]\nclaims: [necessity: {of: g, min: 0}]\n", 6, 7, "the model has no L0.KV7"),
        (
            "groups:\n  g: [L1.H0->L0.H0.q]\nclaims: [necessity: {of: g, min: 0}]\n",
            6,
            7,
            "the model has no edge L1.H0->L0.H0.q",
        ),
    ],
)
def test_units_that_the_model_lacks_are_told_at_their_place(judged, text, line, column, message):
    with pytest.raises(SpecError) as caught:
        judged(text, Recorded())
    assert (caught.value.line, caught.value.column) == (line, column)
    assert message in str(caught.value)


CLAIM = "circuit: {top: 10%}\nclaims:\n  - necessity: {min: 0.3}\n"


@pytest.mark.parametrize(
    ("error", "line", "column"), [(TaskError("no such task"), 4, 9), (UsageError("no such option"), 7, 5)]
)
def test_what_the_lab_refuses_is_told_at_the_place_that_asks_for_it(judged, error, line, column):
    with pytest.raises(SpecError) as caught:
        judged(CLAIM, Recorded(error))
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"x.circuit.yaml:{line}:{column}: {error.what}")


def test_other_errors_pass_through(judged):
    with pytest.raises(LoadError):
        judged(CLAIM, Recorded(LoadError("no such model")))


def test_a_claim_may_be_judged_by_the_name_of_an_outcome(judged, monkeypatch):
    class Named(Recorded):
        def measure(self, claim, circuit, *, decide=None, **options):
            self.calls.append((claim, decide, options))
            labels = {"kept": Label("refuted", "it moved"), "moved": Label("supported")}
            inference = ProportionInference(150, 200)
            return Estimate(claim=claim, value=0.75, inference=inference, n_examples=200, labels=labels)

    def moves(lab, circuit, *, controls: int = 40):
        """Does it move?"""

    kind = ClaimKind("moves", labels("kept", "moved")(moves))
    monkeypatch.setattr("circuittest.claims.claim_kinds", lambda: {"moves": kind})
    lab = Named()
    text = "circuit: {top: 10%}\nclaims:\n  - moves: {is: moved, controls: 7}\n  - moves: {id: b, is: kept}\n"
    verdicts = judged(text + "  - moves: {id: c, min: 0.5}\n", lab)
    assert [(v.outcome, v.op, v.threshold) for v in verdicts] == [
        ("supported", "is", "moved"),
        ("refuted", "is", "kept"),
        ("supported", ">=", 0.5),
    ]
    assert next(call for call in lab.calls if call[0] == "moves") == ("moves", None, {"controls": 7})
    for wrong, words in (
        ("{is: move}", "no outcome 'move'. Did you mean 'moved'"),
        ("{is: kept, min: 1}", "has 2 thresholds"),
        ("{is: }", "'is' of the claim moves is empty. Give it a name"),
        ("{iss: kept}", "Did you mean 'is'"),
        ("{}", "or 'is' with one of kept, moved"),
        ("{is: 3}", "it must be text"),
    ):
        with pytest.raises(SpecError) as caught:
            judged(f"circuit: {{top: 10%}}\nclaims:\n  - moves: {wrong}\n", lab)
        assert words in str(caught.value)


def test_a_claim_that_is_a_number_has_no_names(judged):
    with pytest.raises(SpecError, match="the claim reuse has no named outcomes"):
        judged("circuit: {top: 10%}\nclaims:\n  - reuse: {is: kept}\n", Recorded())
