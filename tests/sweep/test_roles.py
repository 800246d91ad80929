"""Roles over checkpoints: sums in the circuit, since when, and who took over."""

from __future__ import annotations

import pytest

from circuittest.sweep.roles import losses, role_curves

NAMES = ["s1", "s2", "s3", "s4"]


def result(circuit: list[str] | None, **scores: float) -> dict:
    heads = {name: [mean, 0.01] for name, mean in scores.items()}
    found = None if circuit is None else {"heads": circuit}
    return {"roles": {"copy": {"heads": heads, "undefined": ""}}, "circuit": found}


RUN = [
    result(None, a=0.1, b=0.0, c=0.0),
    result(["a", "b"], a=0.9, b=0.1, c=0.0),
    result(["a", "b"], a=0.6, b=0.2, c=0.1),
    result(["b"], a=0.1, b=0.8, c=0.5),
]


def test_sums_are_of_the_heads_in_the_circuit() -> None:
    found = role_curves(NAMES, RUN, 0.4)["copy"]
    curve = found["curve"]
    assert [one["in_circuit"] for one in curve] == [None, *map(pytest.approx, (1.0, 0.8, 0.8))]
    assert [one["of_largest"] for one in curve] == [None, *map(pytest.approx, (1.0, 0.8, 0.8))]
    assert [one["all"] for one in curve] == pytest.approx([0.1, 1.0, 0.9, 1.4])
    assert [one["heads"] for one in curve] == [{}, {"a": 0.9}, {"a": 0.6}, {"b": 0.8, "c": 0.5}]
    assert curve[3]["largest"] == ["b", 0.8]
    assert (found["appears_at"], found["stays_from"]) == ("s2", "s2")


def test_who_took_over_when_a_head_lost_its_role() -> None:
    (found,) = role_curves(NAMES, RUN, 0.4)["copy"]["lost"]
    assert (found["head"], found["at"], found["before"], found["after"]) == ("a", "s4", 0.6, 0.1)
    assert found["was_in_circuit"] is True
    assert found["taken_over_by"] == [
        {"head": "b", "before": 0.2, "after": 0.8, "in_circuit": True},
        {"head": "c", "before": 0.1, "after": 0.5, "in_circuit": False},
    ]
    assert (found["kept_by"], found["next"]) == ([], None)


def lost(*checkpoints: dict[str, float], error: float | None = 0.01) -> list[dict]:
    scores = [{head: [mean, error] for head, mean in one.items()} for one in checkpoints]
    return losses(NAMES[: len(scores)], scores, [None] * len(scores), 0.4)


def test_a_score_that_wavers_about_the_level_is_no_loss() -> None:
    assert lost({"a": 0.41}, {"a": 0.395}) == []  # standard error of the fall: 0.0141
    assert [one["head"] for one in lost({"a": 0.41}, {"a": 0.38})] == ["a"]
    assert lost({"a": 0.41}, {"a": 0.38}, error=0.02) == []
    assert len(lost({"a": 0.41}, {"a": 0.399}, error=None)) == 1
    (found,) = lost({"a": 0.9, "b": 0.395}, {"a": 0.1, "b": 0.41})
    assert found["taken_over_by"] == []  # b did not rise beyond chance


def test_others_may_have_had_it_all_along_or_only_later() -> None:
    (found,) = lost({"a": 0.9, "b": 0.5}, {"a": 0.1, "b": 0.6})
    assert (found["taken_over_by"], found["kept_by"], found["next"]) == ([], ["b"], None)
    assert found["was_in_circuit"] is None
    (found,) = lost({"a": 0.9, "b": 0.0}, {"a": 0.1, "b": 0.1}, {"a": 0.1, "b": 0.3}, {"a": 0.0, "b": 0.7})
    assert found["next"] == {"model": "s4", "heads": ["b"]}
    assert lost({"a": 0.9}, {"a": 0.1})[0]["next"] is None


def test_a_role_that_is_undefined_or_goes_away() -> None:
    nothing = {"roles": {"copy": {"heads": {}, "undefined": "why"}}, "circuit": {"heads": ["a"]}}
    found = role_curves(NAMES[:3], [nothing, result(["a"], a=0.7), result(["a"], a=0.2)], 0.4)["copy"]
    assert [one["in_circuit"] for one in found["curve"]] == [None, 0.7, 0.2]
    assert (found["curve"][0]["undefined"], found["curve"][0]["all"]) == ("why", None)
    assert (found["appears_at"], found["stays_from"]) == ("s2", None)
    assert role_curves(NAMES[:1], [{"roles": {}, "circuit": None}], 0.4) == {}
    silent = role_curves(NAMES[:1], [result(["a"], a=0.0)], 0.4)["copy"]["curve"][0]
    assert (silent["in_circuit"], silent["of_largest"]) == (0.0, None)
