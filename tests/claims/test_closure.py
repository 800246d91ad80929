"""Closure on planted sets of heads: each label where it is true, none where it is not, and what cannot be judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuittest.circuit import Circuit, prompt_digest
from circuittest.errors import UsageError
from circuittest.stats import InvalidClaim, Undecided
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

LAYOUT = Layout(n_layers=6, n_heads=8, n_kv_heads=8)
HEADS = LAYOUT.units(("head",))
KEY, BACKUP, HARMFUL = Unit("head", 1, 2), Unit("head", 3, 4), Unit("head", 4, 1)


def noise(index: int, salt: int = 0) -> float:
    """A fixed number for each example, mean about 0, deviation about 0.3."""
    return float(np.sin(12.9898 * (index + 1) + 78.233 * salt))  # any irregular sequence would do


def lab_of(strength: Any, **more: Any) -> TableLab:
    """Right while the answer's strength is above 0.5; the graded measures are the strength itself, from about 4 to 0."""

    def graded(ablated: frozenset[Unit], index: int) -> float:
        if len(ablated) == len(HEADS):
            return 0.2 * noise(index)
        junk = sum(0.02 * noise(index, HEADS.index(u) + 1) for u in ablated)
        return float(strength(ablated, index)) + 0.2 * noise(index) + junk

    return TableLab(
        lambda ablated, index: float(graded(ablated, index) > 0.5), layout=LAYOUT, graded=graded, **more
    )


def needs(ablated: frozenset[Unit], index: int) -> float:
    return 0.0 if KEY in ablated else 4.0


def test_a_head_that_everything_hangs_on_is_load_bearing() -> None:
    found = lab_of(needs).closure(Circuit.of([KEY]))
    assert found.label == "load-bearing"
    assert found.labelled("load-bearing")
    for other in ("none", "redundant", "interfering"):
        assert not found.labelled(other)
    assert found.value == pytest.approx(4.0, abs=0.1)
    assert found > 3.0
    details = found.details
    assert set(details) >= {"log_prob", "logit_diff", "argmax", "controls", "population"}
    assert details["argmax"]["effect"] == 1.0
    assert len(details["log_prob"]["controls"]) == details["population"] == found.n_controls == 47
    assert details["log_prob"]["p"] == details["log_prob"]["p_resolution"] == 1 / 48


def test_the_number_may_be_in_another_measure() -> None:
    found = lab_of(needs).closure(Circuit.of([KEY]), metric="accuracy")
    assert found.value == pytest.approx(1.0)
    assert found.choices["metric"] == "accuracy"


def test_an_idle_head_is_none_of_it() -> None:
    found = lab_of(needs).closure(Circuit.of(["L0.H0"]))
    assert found.label == "none"
    assert not found.labelled("load-bearing")
    with pytest.raises(Undecided, match="no complement was given"):
        bool(found.labelled("redundant"))


def test_a_head_whose_removal_helps_interferes() -> None:
    lab = lab_of(lambda ablated, i: 2.0 + 1.5 * (HARMFUL in ablated) if len(ablated) < 48 else 0.0)
    found = lab.closure(Circuit.of([HARMFUL]))
    assert found.label == "interfering"
    assert found.value is not None
    assert found.value < -1
    assert not found.labelled("load-bearing")


def test_less_damage_than_controls_is_no_interference() -> None:
    # every other head costs a little, this one nothing: it ranks last, but removing it does not help
    lab = lab_of(lambda ablated, i: 4.0 - 1.0 * len(ablated - {KEY}) if len(ablated) < 4 else 0.0)
    found = lab.closure(Circuit.of([KEY]))
    assert found.details["log_prob"]["p_help"] == 1 / 48
    assert found.value == pytest.approx(-1.0, abs=0.1)
    assert found.label is None


def test_controls_that_help_make_no_load_bearing_set() -> None:
    # the mirror image: ablating any other head helps, also by making a fifth of the examples right; this one does nothing
    def strength(ablated: frozenset[Unit], index: int) -> float:
        weak = 0.0 if index % 5 == 0 else 3.0
        return weak + 1.5 * bool(ablated - {KEY}) if len(ablated) < 48 else 0.0

    found = lab_of(strength).closure(Circuit.of([KEY]))
    for measure in ("log_prob", "logit_diff", "argmax"):
        assert found.details[measure]["p"] == 1 / 48
        assert found.details[measure]["beyond_share"]["interval"][0] > 0
    assert found.label is None


def redundant(ablated: frozenset[Unit], index: int) -> float:
    """Either of two heads does the work."""
    return 0.0 if {KEY, BACKUP} <= ablated else 4.0


def test_redundancy_shows_once_the_complement_is_removed() -> None:
    alone = lab_of(redundant).closure(Circuit.of([KEY]))
    assert alone.label == "none"
    found = lab_of(redundant).closure(Circuit.of([KEY]), complement=["L3.H4"])
    assert found.label == "redundant"
    assert not found.labelled("none")
    assert found.details["with_complement_removed"]["log_prob"]["effect"] == pytest.approx(4.0, abs=0.1)
    assert not any("L3.H4" in units for units in found.details["controls"])


def test_half_a_redundancy_is_neither_none_nor_redundant() -> None:
    # with the other head removed, this one costs strength and no answer
    found = lab_of(
        lambda ablated, i: 0.0 if len(ablated) > 40 else 2.0 if {KEY, BACKUP} <= ablated else 4.0
    ).closure(Circuit.of([KEY]), complement=["L3.H4"])
    assert found.details["with_complement_removed"]["log_prob"]["p_load_bearing"] <= 0.025
    assert found.label is None
    assert {label.outcome for label in found.labels.values()} == {"undecided"}


def test_a_small_effect_is_none_however_significant() -> None:
    found = lab_of(lambda ablated, i: 0.0 if len(ablated) > 40 else 4.0 - 0.2 * (KEY in ablated)).closure(
        Circuit.of([KEY]), metric="logit_diff"
    )
    assert found > 0.1
    assert found.details["log_prob"]["p_load_bearing"] <= 0.025
    assert found.label == "none"
    assert not found.labelled("load-bearing")


def test_a_complement_does_not_make_an_idle_head_redundant() -> None:
    found = lab_of(redundant).closure(Circuit.of(["L0.H0"]), complement=["L3.H4"])
    assert found.label == "none"
    assert not found.labelled("redundant")


def test_a_complement_that_leaves_nothing_to_lose_proves_nothing() -> None:
    found = lab_of(needs).closure(Circuit.of(["L0.H0"]), complement=[str(KEY)])
    assert found.label is None
    with pytest.raises(Undecided, match="nothing is left to lose"):
        bool(found.labelled("redundant"))


def test_load_bearing_needs_all_three_measures() -> None:
    # the answer loses strength but stays on top: function of the graded kind only
    lab = lab_of(lambda ablated, i: 0.0 if len(ablated) > 40 else 2.0 if KEY in ablated else 4.0)
    found = lab.closure(Circuit.of([KEY]))
    assert found.details["log_prob"]["p_load_bearing"] <= 0.025
    assert found.details["argmax"]["effect"] == 0.0
    assert found.label is None


def test_five_controls_establish_nothing_however_large_the_z_score() -> None:
    lab = lab_of(lambda ablated, i: 0.0 if {KEY, BACKUP} <= ablated else 4.0)
    found = lab.closure(Circuit.of([KEY, BACKUP]), controls=5, match="kind")
    assert found.details["population"] == 46 * 45 // 2
    damages = np.array(found.details["log_prob"]["controls"])
    assert len(damages) == 5
    assert (found.details["log_prob"]["effect"] - damages.mean()) / damages.std() > 50
    assert found.label is None
    with pytest.raises(Undecided, match="rank p cannot fall below 0.18"):
        bool(found.labelled("load-bearing"))


def test_layer_matched_sets_may_be_too_few() -> None:
    found = lab_of(needs).closure(Circuit.of([KEY]), match="layer")
    assert found.details["population"] == 7
    with pytest.raises(Undecided, match="all that exist"):
        bool(found.labelled("load-bearing"))
    assert "match: kind" in found.hints[0]


def test_a_layer_that_matters_is_told_from_a_circuit_in_it() -> None:
    # any two heads of layers 0 and 1 cost much; against sets of all layers a random pair of them looks special
    early = frozenset(u for u in HEADS if u.layer is not None and u.layer < 2)
    lab = lab_of(lambda ablated, i: 0.0 if len(ablated) > 40 else 1.5 if len(ablated & early) > 1 else 4.0)
    pair = Circuit.of(["L0.H3", "L1.H5"])
    assert lab.closure(pair).details["log_prob"]["p"] < 0.25
    found = lab.closure(pair, match="layer")
    assert found.details["log_prob"]["p"] > 0.1
    assert found.label == "none"


@pytest.mark.parametrize("decide", [None, 0.0])
def test_a_set_that_destroys_the_model_is_not_equivalent_to_controls_that_do(decide: float | None) -> None:
    # any ten heads are the whole task: this set costs all of it, and so does every other one
    lab = lab_of(lambda ablated, i: 0.0 if len(ablated) >= 10 else 4.0)
    found = lab.closure(Circuit.of([str(head) for head in HEADS[:12]]), decide=decide)
    assert "the control destroys the model too: mean log_prob" in found.invalid
    assert found.details["argmax"]["effect"] == 1.0
    with pytest.raises(InvalidClaim, match="judge a smaller circuit"):
        bool(found.labelled("none"))


def test_controls_that_leave_no_accuracy_show_nothing_of_it() -> None:
    # every pair makes all answers wrong and costs half of the strength
    def strength(ablated: frozenset[Unit], index: int) -> float:
        return 0.0 if len(ablated) > 40 else 2.0 if len(ablated) > 1 else 4.0

    lab = lab_of(strength)
    lab.rule = lambda ablated, index: float(len(ablated) < 2)
    assert "mean argmax 0.00 under controls" in lab.closure(Circuit.of(["L0.H0", "L3.H3"])).invalid


def test_a_complement_after_which_controls_destroy_the_model_proves_nothing() -> None:
    # heads are idle, until the complement is gone: then any one of them is the whole task
    lab = lab_of(
        lambda ablated, i: 0.0 if len(ablated) > 40 or (BACKUP in ablated and len(ablated) > 1) else 4.0
    )
    found = lab.closure(Circuit.of([KEY]), complement=[str(BACKUP)])
    assert found.label is None
    with pytest.raises(Undecided, match="the control destroys the model too"):
        bool(found.labelled("redundant"))
    with pytest.raises(Undecided, match="it may yet be redundant"):
        bool(found.labelled("none"))


def test_a_complement_outside_the_universe_is_removed_from_the_floor_too() -> None:
    # with the MLP gone half of the strength is left, of which this head costs half
    mlp = Unit("mlp", 2)

    def strength(ablated: frozenset[Unit], index: int) -> float:
        if len(ablated - {mlp}) == len(HEADS):
            return 1.0 if mlp not in ablated else 0.0
        return (2.0 if mlp in ablated else 4.0) - 1.0 * ({mlp, KEY} <= ablated)

    lab = TableLab(
        lambda ablated, i: float(strength(ablated, i) > 1.1),
        layout=LAYOUT,
        graded=lambda ablated, i: strength(ablated, i) + 0.1 * noise(i) * bool(ablated),
    )
    found = lab.closure(Circuit.of([KEY]), complement=[str(mlp)])
    share = found.details["with_complement_removed"]["log_prob"]["own_share"]["value"]
    assert share == pytest.approx(0.5, abs=0.02)


def test_bad_names_are_refused_even_where_nothing_can_be_judged() -> None:
    found = lab_of(needs).closure(Circuit())
    assert "empty" in found.invalid
    with pytest.raises(InvalidClaim, match="empty"):
        bool(found.labelled("none"))
    with pytest.raises(UsageError, match="Did you mean 'load-bearing'"):
        found.labelled("load bearing")


def test_what_cannot_be_judged() -> None:
    lab = lab_of(needs)
    seen = [prompt_digest(item.prompt_ids) for item in lab.data.evaluate[:2]]
    assert "2 of the 60" in lab.closure(Circuit.of([KEY], origin={"prompts": seen})).invalid
    assert "edges" in lab.closure(Circuit.of(["L0.H0->L1.H1.q"])).invalid
    assert "tolerance" in lab.closure(Circuit.of([KEY]), tolerance=0.0).invalid
    assert "in its complement" in lab.closure(Circuit.of([KEY]), complement=[str(KEY)]).invalid
    assert "no matched control" in lab.closure(Circuit.of(HEADS[:30])).invalid
    assert "not competent" in lab_of(lambda ablated, i: 0.0).closure(Circuit.of([KEY])).invalid
    data = task_data()
    bare = replace(data, evaluate=tuple(replace(item, foil_ids=()) for item in data.evaluate))
    assert (
        "60 of 60 evaluation examples have no foils"
        in lab_of(needs, data=bare).closure(Circuit.of([KEY])).invalid
    )
    flat = TableLab(lambda ablated, i: float(len(ablated) < 48), layout=LAYOUT, graded=lambda u, i: noise(i))
    assert "contains zero" in flat.closure(Circuit.of([KEY])).invalid


def test_the_loss_on_other_text_is_another_number(monkeypatch: pytest.MonkeyPatch) -> None:
    # the head carries the task, and every other head carries the text
    lab = lab_of(needs)
    other = lab_of(lambda ablated, i: 4.0 - 2.0 * bool(ablated - {KEY}), data=task_data(20, 50))
    monkeypatch.setattr(lab, "on_text", lambda path: other, raising=False)
    found = lab.closure(Circuit.of([KEY]), text="somewhere/words.txt")
    assert found.label == "load-bearing"
    assert found.value == pytest.approx(4.0, abs=0.1)
    loss = found.details["loss"]
    assert loss["beyond"]["value"] == pytest.approx(-2.0, abs=0.1)
    assert (loss["p"], loss["n"]) == (1.0, 50)
    assert found.choices["text"] == "words.txt"
    number = lab.closure(Circuit.of([KEY]), text="words.txt", metric="loss")
    assert number.value == loss["beyond"]["value"]
    assert (number.n_examples, number.label) == (50, "load-bearing")
    assert "give a file" in lab.closure(Circuit.of([KEY]), metric="loss").invalid
    assert "no counterfactual" in lab.closure(Circuit.of([KEY]), text="t", ablation="counterfactual").invalid


def test_one_example_and_equal_examples() -> None:
    one = lab_of(needs, data=task_data(4, 1)).closure(Circuit.of([KEY]))
    assert "not competent" in one.invalid
    same = TableLab(
        lambda u, i: float(KEY not in u and len(u) < 48),
        layout=LAYOUT,
        graded=lambda u, i: 0.0 if KEY in u or len(u) == 48 else 4.0,
    )
    assert same.closure(Circuit.of([KEY])).label == "load-bearing"
    assert same.closure(Circuit.of(["L0.H0"])).label == "none"


def test_the_ablation_reaches_the_lab_and_the_record() -> None:
    lab = lab_of(needs)
    found = lab.closure(Circuit.of([KEY]), ablation="mean", positions="not-first")
    assert (found.choices["ablation"], found.choices["positions"]) == ("mean", "not-first")
    assert {(how["value"], how["positions"]) for how in lab.how} == {("mean", "not-first")}
