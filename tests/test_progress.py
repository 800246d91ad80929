"""Listeners hear a measurement begin, get on and end, under the name of the claim it is for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from circuittest.lab import Lab
from circuittest.progress import Progress, advance, claiming, following, listen_progress


def test_a_measurement_begins_gets_on_and_ends():
    heard: list[Progress] = []
    with listen_progress(heard.append), claiming("necessity"), claiming("inner"), following("ablation", 10):
        advance(4)
        advance(9)  # done again after memory ran out
    assert [(one.claim, one.step) for one in heard] == [("necessity", "ablation")] * 4
    assert [(one.done, one.ended) for one in heard] == [(0, False), (4, False), (10, False), (10, True)]


def test_an_error_ends_it_too_and_the_next_one_starts_anew():
    heard: list[Progress] = []
    with listen_progress(heard.append):
        with pytest.raises(RuntimeError), following("ablation", 2):
            raise RuntimeError
        advance(1)  # of nothing
        with following("attribution", 3):
            pass
    assert [(one.step, one.ended) for one in heard] == [
        ("ablation", False),
        ("ablation", True),
        ("attribution", False),
        ("attribution", True),
    ]


def test_without_listeners_nothing_is_counted():
    with following("ablation", 3):
        advance(1)
    heard: list[Progress] = []
    with listen_progress(heard.append):
        pass
    assert heard == []


def test_a_lab_tells_of_attribution_and_ablation():
    heard: list[Progress] = []
    lab = Lab("zoo:gqa", "ioi", discover=6, evaluate=8)
    with listen_progress(heard.append):
        circuit = lab.shared()
        lab.necessity(circuit, controls=3)
    ended = [(one.step, one.done, one.total) for one in heard if one.ended]
    assert ended[0] == ("attribution", 6, 6)
    steps_of_claim = [one for one in heard if one.claim]
    assert {one.claim for one in steps_of_claim} == {"necessity of Lab(zoo:gqa, ioi)"}
    # nothing and everything; the circuit; three controls
    assert sorted(total for step, _, total in ended if step == "ablation")[-1] in (16, 24)
    assert all(done == total for _, done, total in ended)


def test_a_lab_says_whose_it_is():
    assert repr(Lab("zoo:gqa", "ioi")) == "Lab(zoo:gqa, ioi)"
    assert repr(Lab(SimpleNamespace(name="tuned"), "ioi")) == "Lab(tuned, ioi)"
    assert repr(Lab(SimpleNamespace(name=lambda: "x"), "ioi")) == "Lab(in-memory, ioi)"
    assert repr(Lab(SimpleNamespace(), "ioi", name="mine")) == "Lab(mine, ioi)"
