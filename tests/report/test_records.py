"""Records: what they hold, that they are plain and the same bytes, and what writing refuses."""

from __future__ import annotations

import json
import math
import os
import stat
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from circuittest.circuit import Circuit
from circuittest.errors import UsageError
from circuittest.report import records as module
from circuittest.report.exit_codes import exit_code
from circuittest.report.records import environment, plain, read_records, record, render, write_records
from circuittest.stats import Estimate, ProportionInference
from circuittest.units import Unit


def estimate(successes: int = 150, **more):
    inference = ProportionInference(successes, 200)
    given = {
        "value": successes / 200,
        "inference": inference,
        "n_examples": 200,
        "model": "zoo:gqa",
        "task": "ioi",
    }
    return Estimate(**{"claim": "necessity", **given, **more})


def test_a_verdict():
    circuit = Circuit.of(["L1.H2", "L0.MLP", "L0.H3->L4.H1.q"], name="c")
    measured = estimate(
        circuit=circuit, n_controls=np.int64(40), choices={"seed": np.int64(3)}, label="kept", margin=0.1
    )
    found = record(measured >= 0.3, id="x::y", outcome="passed")
    assert found["circuit"] == {"name": "c", "units": ["L0.MLP", "L1.H2"], "edges": ["L0.H3->L4.H1.q"]}
    assert found["threshold"] == {"op": ">=", "value": 0.3}
    assert (found["verdict"], found["label"], found["margin"], found["n_controls"]) == (
        "supported",
        "kept",
        0.1,
        40,
    )
    assert found["choices"] == {"seed": 3}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_an_estimate_that_nobody_judged():
    found = record(estimate(), id="x", outcome="passed")
    assert (found["verdict"], found["threshold"], found["p_value"]) == ("measured", None, None)


def test_undefined_is_null_and_invalid():
    broken = Estimate(claim="reuse", value=None, invalid="no examples", model="m")
    for measured in (broken, broken >= 0.3):
        found = record(measured, id="x", outcome="failed")
        assert (found["estimate"], found["interval"], found["verdict"]) == (None, None, "invalid")
        assert found["reason"] == "no examples"


def test_open_ends_are_null():
    class Open:
        value, method = 0.5, "made up"

        def interval(self, confidence=0.95):
            return 0.2, math.inf

    found = record(estimate(inference=Open()), id="x", outcome="passed")
    assert found["interval"] == [0.2, None]


def test_plain_turns_arrays_scalars_and_units_into_json_types():
    value = {
        "a": np.array([[1.0, math.nan]]),
        3: (np.float32(0.5), np.bool_(True)),
        "u": [Unit.parse("L1.H2")],
        "s": {"b", "a"},
    }
    found = plain(value)
    assert found == {"a": [[1.0, None]], "3": [0.5, True], "u": ["L1.H2"], "s": ["a", "b"]}
    assert type(found["3"][0]) is float
    assert type(plain(np.float64(0.5))) is float


def test_plain_refuses_objects():
    with pytest.raises(UsageError, match="details.a.b of an estimate holds a object"):
        plain({"a": {"b": object()}}, "details")


def test_the_same_bytes_in_any_order():
    made = [record(estimate(k) >= 0.3, id=f"t{k}", outcome="passed") for k in (10, 65, 150)]
    (text,) = {render(order) for order in permutations(made)}
    assert [claim["id"] for claim in json.loads(text)["claims"]] == ["t10", "t150", "t65"]
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def test_environment_names_versions_and_nothing_of_the_machine():
    found = environment(
        [{"choices": {"dtype": "float32", "threads": 2, "device": "cpu"}}, {"choices": {"threads": 1}}]
    )
    assert set(found) == {
        "python", "circuittest", "torch", "transformers", "numpy", "scipy", "device", "dtype", "threads"
    }  # fmt: skip
    assert (found["numpy"], found["threads"], found["dtype"]) == (np.__version__, [1, 2], ["float32"])
    text = json.dumps(found)
    assert os.uname().nodename not in text
    assert os.getcwd() not in text


def test_a_package_that_is_not_installed_is_null(monkeypatch):
    monkeypatch.setattr(module, "_PACKAGES", ("circuittest", "no-such-package"))
    assert environment()["no-such-package"] is None


def test_writing_and_reading(tmp_path):
    target = tmp_path / "deep" / "r.json"
    made = [record(estimate() >= 0.3, id="x", outcome="passed")]
    write_records(target, made)
    write_records(target, made)
    assert read_records(target)["claims"] == made
    assert [path.name for path in target.parent.iterdir()] == ["r.json"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("content", ["text", "[]", '{"claims": []}', '{"schema": "circuittest-circuit/1"}'])
def test_what_is_not_ours_is_not_overwritten(tmp_path, content):
    target = tmp_path / "r.json"
    target.write_text(content)
    with pytest.raises(UsageError, match=r"is not overwritten"):
        write_records(target, [])
    assert target.read_text() == content


def test_a_crash_while_writing_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    target = tmp_path / "r.json"
    write_records(target, [])
    before = target.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UsageError, match="No space left"):
        write_records(target, [record(estimate(), id="x", outcome="passed")])
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([], 0), (["supported"], 0), (["supported", "measured"], 0), (["supported", "refuted", "undecided"], 1),
        (["undecided", "supported"], 3), (["invalid"], 3), (["invalid", "refuted"], 1),
    ],
)  # fmt: skip
def test_exit_codes(verdicts, code):
    assert exit_code({"verdict": verdict, "outcome": "failed"} for verdict in verdicts) == code


def test_skipped_records_do_not_count():
    assert exit_code([{"verdict": "undecided", "outcome": "skipped"}]) == 0


@given(
    st.floats() | st.integers() | st.booleans() | st.text() | st.none() | st.lists(st.floats(), max_size=3)
)
def test_plain_is_always_json(value):
    text = json.dumps(plain(value), allow_nan=False)
    assert plain(json.loads(text)) == json.loads(text)
