"""Reading specs: what comes out, and every mistake at its place."""

from __future__ import annotations

import subprocess
import sys

import pytest

from circuittest.circuit import Circuit
from circuittest.errors import SpecError
from circuittest.spec import load_spec

GOOD = """\
circuittest: 1
model: zoo:gqa
task: {name: ioi, discover: 200, evaluate: 150, seed: 3, prefix: bos, accuracy: argmax, metric: log_prob}
circuit: {method: eap, universe: heads, top: 12.5%, at: 90, score: node}
groups: {name_movers: [L5.H1, L5.H6], edges: [L0.H3->L4.H1.q, embed->L2.MLP]}
claims:
  - reuse: {min: 0.25, folds: 4}
  - necessity: {above: 0, controls: 20, match: layer}
  - necessity: {of: name_movers, max: 0.5}
  - coverage: {id: cover, below: 1.0e-1}
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "ioi.circuit.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refused(path):
    with pytest.raises(SpecError) as caught:
        load_spec(path, name="ioi.circuit.yaml")
    assert caught.value.line is not None
    assert caught.value.column is not None
    return caught.value


def test_how_circuits_are_scored_is_handed_on(write):
    found = "{method: eap-ig, universe: heads, top: 12.5%, at: 90, score: node, steps: 3, baseline: mean}"
    spec = load_spec(
        write(GOOD.replace("{method: eap, universe: heads, top: 12.5%, at: 90, score: node}", found))
    )
    assert (spec.circuit["method"], spec.circuit["steps"], spec.circuit["baseline"]) == ("eap-ig", 3, "mean")


def test_a_good_spec(write):
    spec = load_spec(write(GOOD))
    assert spec.models == ("zoo:gqa",)
    assert (spec.task, spec.task_options) == (
        "ioi",
        {
            "discover": 200,
            "evaluate": 150,
            "seed": 3,
            "prefix": "bos",
            "accuracy": "argmax",
            "metric": "log_prob",
        },
    )
    assert spec.circuit == {"method": "eap", "universe": "heads", "top": "12.5%", "at": 90, "score": "node"}
    assert spec.groups["name_movers"] == Circuit.of(["L5.H1", "L5.H6"])
    assert spec.groups["name_movers"].name == "name_movers"
    assert len(spec.groups["edges"].edges) == 2
    told = [(c.id, c.claim, c.options, c.op, c.threshold, c.of, c.line, c.column) for c in spec.claims]
    assert told == [
        ("reuse", "reuse", {"folds": 4}, ">=", 0.25, None, 7, 5),
        ("necessity", "necessity", {"controls": 20, "match": "layer"}, ">", 0.0, None, 8, 5),
        ("necessity[name_movers]", "necessity", {}, "<=", 0.5, "name_movers", 9, 5),
        ("cover", "coverage", {}, "<", 0.1, None, 10, 5),
    ]
    assert spec.places["name_movers:L5.H6"] == (5, 31)


def test_the_design_example_is_read(write):
    spec = load_spec(
        write(
            "circuittest: 1\nmodel: [zoo:gqa, zoo:mha]\ntask: ioi\n"
            "circuit: {method: eap, universe: [head, mlp], top: 20%, at: 95}\nclaims:\n  - reuse: {min: 0.25}\n"
        )
    )
    assert spec.models == ("zoo:gqa", "zoo:mha")
    assert spec.task_options == {}


def test_circuits_of_files_lie_beside_the_spec(write, tmp_path, monkeypatch):
    Circuit.of(["L1.H2"], name="mine", origin={"top": "20%"}).save(tmp_path / "c.json")
    text = GOOD.replace("{method: eap, universe: heads, top: 12.5%, at: 90, score: node}", "{file: c.json}")
    path = write(text)
    monkeypatch.chdir("/")
    circuit = load_spec(path).circuit
    assert circuit == Circuit.of(["L1.H2"])
    assert (circuit.name, circuit.origin) == ("mine", {"top": "20%"})


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "message"),
    [
        # the top level
        ("circuittest: 1\n", "", 1, 1, "the key 'circuittest' is missing: it says the version"),
        ("circuittest: 1", "circuittest: 2", 1, 14, "'circuittest' is 2: this release reads version 1"),
        ("circuittest: 1", "circuittest: true", 1, 14, "'circuittest' is True"),
        ("circuittest: 1", "circuittest: '1'", 1, 14, "'circuittest' is '1'"),
        ("model: zoo:gqa\n", "", 1, 1, "the key 'model' is missing in the spec. Add 'model'."),
        ("model:", "modle:", 2, 1, "unknown key 'modle' in the spec. Did you mean 'model'?"),
        ("model: zoo:gqa", "model:", 2, 7, "'model' of the spec is empty"),
        ("model: zoo:gqa", "model: 3", 2, 8, "'model' of the spec is 3: it must be text or a list"),
        ("model: zoo:gqa", "model: []", 2, 8, "'model' of the spec is []"),
        ("model: zoo:gqa", "model: [a, 1]", 2, 12, "'model.1' of the spec is 1: it must be text"),
        ("model: zoo:gqa", "model: [a, b, a]", 2, 15, "the model 'a' is listed twice"),
        ("model: zoo:gqa", "model: ' a'", 2, 8, "it must look like a word"),
        # the task
        ("{name: ioi, discover", "{nam: ioi, discover", 3, 8, "unknown key 'nam' in task. Did you mean 'name'?"),
        ("name: ioi, ", "", 3, 7, "the key 'name' is missing in task"),
        ("discover: 200", "discover: '200'", 3, 29, "'discover' of task is \"200\": it must be a whole number. Write"),
        ("discover: 200", "discover: 0", 3, 29, "it must be greater than or equal to 1"),
        ("discover: 200", "discover: 1.5", 3, 29, "'discover' of task is 1.5"),
        ("seed: 3", "seed: true", 3, 55, "'seed' of task is true: it must be a whole number"),
        ("accuracy: argmax", "accuracy: argmx", 3, 81, "it is one of 'argmax' or 'candidates'. Did you mean 'argmax'?"),
        ("prefix: bos", "prefix: ", 3, 66, "'prefix' of task is empty. Give it a value, or remove the key."),
        # the circuit
        ("top: 12.5%", "top: 20", 4, 46, "'top' of circuit is 20: it must be text. Write 20%."),
        ("top: 12.5%", "top: 120%", 4, 46, "it must look like 20%"),
        ("at: 90", "at: 101", 4, 57, "less than or equal to 100"),
        ("score: node", "score: nod", 4, 68, "Did you mean 'node'?"),
        ("method: eap,", "metod: eap,", 4, 11, "unknown key 'metod' in circuit. Did you mean 'method'?"),
        ("method: eap,", "method: epa,", 4, 19, "it is one of 'eap', 'eap-ig' or 'exact'. Did you mean 'eap'?"),
        ("method: eap,", "method: minimal,", 4, 28, "unknown key 'universe' in circuit (minimal)"),
        ("method: eap, universe: heads, top: 12.5%, at: 90, score: node", "method: minimal, cap: 5", 4, 33, "'cap' of circuit (minimal) is 5"),
        ("method: eap, universe: heads, top: 12.5%, at: 90, score: node", "method: minimal, faithfulness: 1", 4, 42, "less than 1"),
        ("{method: eap, universe: heads, top: 12.5%, at: 90, score: node}", "{}", 4, 10, "the circuit is empty"),
        ("{method: eap, universe: heads, top: 12.5%, at: 90, score: node}", "{file: no.json}", 4, 17, "there is no such file; it"),
        ("{method: eap, universe: heads, top: 12.5%, at: 90, score: node}", "{file: ioi.circuit.yaml}", 4, 17, "cannot be used"),
        ("{method: eap, universe: heads, top: 12.5%, at: 90, score: node}", "{units: [L2.H1], top: 20%}", 4, 27, "unknown key 'top'"),
        ("{method: eap, universe: heads, top: 12.5%, at: 90, score: node}", "{units: [L2.H1, L2.X]}", 4, 26, "not a unit id: 'L2.X'"),
        ("{method: eap, universe: heads, top: 12.5%, at: 90, score: node}", "{units: [A->B]}", 4, 19, "not a unit id: 'A'"),
        ("{method: eap, universe: heads, top: 12.5%, at: 90, score: node}", "{units: [1]}", 4, 19, "'units.0' of circuit"),
        ("{method: eap, universe: heads, top: 12.5%, at: 90, score: node}", "{units: []}", 4, 18, "'units' of circuit (of units) is []"),
        ("top: 12.5%", "top: 0.0%", 4, 46, "it must look like 20%"),
        ("score: node", "score: ", 4, 68, "'score' of circuit is empty"),
        ("score: node", "steps: 7", 4, 61, "'steps' of circuit has no use here: only the path of eap-ig has steps"),
        ("score: node", "score: node, level: edges", 4, 61, "'score' of circuit has no use here: edges are ranked by"),
        ("method: eap, universe: heads, top: 12.5%, at: 90, score: node", "method: exact, score: node", 4, 26, "'score' of circuit has no"),
        # groups
        ("L5.H1, L5.H6", "L5.H1, L5.H1", 5, 31, "L5.H1 is listed twice"),
        ("L5.H1, L5.H6", "", 5, 23, "'groups.name_movers' of the spec is []: it is empty"),
        ("edges: [", "a b: [", 5, 39, "'a b' cannot name a group"),
        # claims
        ("- reuse:", "- resue:", 7, 5, "unknown claim 'resue'. Did you mean 'reuse'?"),
        ("folds: 4", "fold: 4", 7, 24, "unknown key 'fold' in the claim reuse. Did you mean 'folds'?"),
        ("folds: 4", "folds: four", 7, 31, "'folds' of the claim reuse is \"four\": it must be a whole number"),
        ("folds: 4", "max: 4", 7, 24, "the claim reuse has 2 thresholds: it says 'min' and 'max'"),
        ("min: 0.25, ", "", 7, 5, "the claim reuse has no threshold. Add one of min (≥), above (>)"),
        ("min: 0.25", "min: '0.25'", 7, 18, "'min' of the claim reuse is \"0.25\": it must be a number. Write the number"),
        ("min: 0.25", "min: true", 7, 18, "'min' of the claim reuse is true"),
        ("min: 0.25", "min: ", 7, 18, "the claim reuse is empty"),
        ("min: 0.25", "min: [1]", 7, 18, "'min' of the claim reuse is [1]"),
        ("min: 0.25", "min: 1e-3", 7, 18, "1e-3 is a string, not a number"),
        ("match: layer", "match: layr", 8, 48, "it is one of 'kind' or 'layer'. Did you mean 'layer'?"),
        ("of: name_movers", "of: name_mover", 9, 21, "no group 'name_mover'. Did you mean 'name_movers'?"),
        ("of: name_movers", "of: ", 9, 21, "'of' of the claim necessity is empty"),
        ("folds: 4", "seed: -1", 7, 30, "'seed' of the claim reuse is -1: it must be greater than or equal to 0"),
        ("folds: 4", "overlap: [sva, svaa]", 7, 39, "there is no task 'svaa'. Did you mean 'sva'?"),
        ("controls: 20", "controls: 1000000", 8, 37, "less than or equal to 10000"),
        # numbers that the estimate cannot have: the claim would hold, or fail, whatever is measured
        ("min: 0.25", "min: 25", 7, 18, "'min' of the claim reuse is 25: its estimate lies between 0 and 1. Write 0.25 for 25 %."),
        ("min: 0.25", "above: -0.5", 7, 20, "'above' of the claim reuse is -0.5: its estimate lies between 0 and 1. Write a number"),
        ("  - coverage: {id: cover, below: 1.0e-1}", "  - equivalence: {max: 10}", 10, 24, "its estimate lies between 0 and 0.5. Write 0.1"),
        ("  - coverage: {id: cover, below: 1.0e-1}", "  - families: {partition: template, below: 0}", 10, 44, "its estimate lies at 1 or above"),
        ("  - coverage: {id: cover, below: 1.0e-1}", "  - drift.behaviour: {margin: 25}", 10, 31, "lies between 0 and 1. Write 0.25 for 25 %"),
        ("  - coverage: {id: cover, below: 1.0e-1}", "  - drift.structure: {margin: 0.1, max: 0.9}", 10, 41, "is 0.9 and its margin 0.1"),
        ("id: cover", "id: reuse", 10, 20, "the id 'reuse' is taken: the claim in line 7 has it already"),
        ("id: cover", "id: 'a::b'", 10, 20, "it must look like a word of letters"),
        ("id: cover, ", "decide: 3, ", 10, 16, "unknown key 'decide' in the claim coverage"),
        ("  - coverage: {id: cover, below: 1.0e-1}", "  - reuse: {min: 0.1}", 10, 5, "the id 'reuse' is taken"),
        ("  - coverage: {id: cover, below: 1.0e-1}", "  - coverage", 10, 5, "'claims.3' of the spec is \"coverage\": it must be a mapping"),
        ("  - coverage: {id: cover, below: 1.0e-1}", "  - coverage: 0.3", 10, 15, "the claim coverage is given no mapping"),
        ("  - coverage: {id: cover, below: 1.0e-1}", "  - coverage:\n    min: 0.3", 10, 5, "a claim is one key, not 2: indent"),
        ("  - coverage: {id: cover, below: 1.0e-1}", "  - {}", 10, 5, "a claim is missing here"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(write, old, new, line, column, message):
    assert GOOD.count(old) == 1
    error = refused(write(GOOD.replace(old, new)))
    assert message in str(error)
    assert (error.line, error.column) == (line, column)
    assert str(error).startswith(f"ioi.circuit.yaml:{line}:{column}: ")


@pytest.mark.parametrize(
    "claim",
    [
        "reuse: {max: 1, id: again}",
        "equivalence: {test: difference, max: 10}",
        "drift.behaviour: {metric: log_prob, margin: 25}",
        "drift.behaviour: {side: worse, margin: 0.1, above: -0.5}",
        "drift.structure: {margin: 0.2, max: 0.1}",
    ],
)
def test_numbers_that_an_estimate_can_have_are_read(write, claim):
    assert load_spec(write(GOOD.replace("coverage: {id: cover, below: 1.0e-1}", claim)))


def test_claims_need_a_circuit_or_a_group(write):
    text = GOOD.replace("circuit: {method: eap, universe: heads, top: 12.5%, at: 90, score: node}\n", "")
    error = refused(write(text))
    assert "the claim reuse is about no circuit" in str(error)
    only_groups = "\n".join(
        line for line in text.splitlines() if not any(w in line for w in ("reuse:", "controls", "id: cover"))
    )
    assert [claim.id for claim in load_spec(write(only_groups)).claims] == ["necessity[name_movers]"]


def test_a_spec_is_a_mapping_with_claims(write):
    assert "a spec is a mapping" in str(refused(write("- a\n")))
    assert "the key 'claims' is missing" in str(refused(write("circuittest: 1\nmodel: a\ntask: ioi\n")))
    assert "'claims' of the spec is []" in str(
        refused(write("circuittest: 1\nmodel: a\ntask: ioi\nclaims: []\n"))
    )


def test_reading_a_spec_loads_no_model_code(write):
    code = (
        "import sys; from circuittest.spec import load_spec; load_spec(sys.argv[1]); "
        "print([m for m in ('torch', 'transformers', 'pytest', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(write(GOOD))], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
