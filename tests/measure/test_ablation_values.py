"""ablate() with other values than zero and at some positions only: what plain hooks on the whole model give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import Tensor

from circuittest.errors import UsageError
from circuittest.lab import Lab
from circuittest.measure import values as values_module
from circuittest.measure.ablation import ablate
from circuittest.measure.batches import plan
from circuittest.measure.sites import Site
from circuittest.measure.values import VALUES, source
from circuittest.models.loaded import LoadedModel
from circuittest.units import Unit
from tests.helpers import tiny
from tests.helpers.items import FakeItem, random_items
from tests.helpers.plain import Plain, Record, scores
from tests.helpers.table_lab import task_data

ITEMS = random_items(3)
CALIBRATION = [replace(item, index=item.index + 100) for item in random_items(5, seed=3)]
POSITIONS = ("all", "not-first", "answer")
#: The heads of a KV group (two of four) and of an attention layer are written out for the reference.
SETS = {
    "": "",
    "L0.H1": "L0.H1",
    "L2.MLP": "L2.MLP",
    "L1.ATTN": "L1.H0 L1.H1 L1.H2 L1.H3",
    "L0.H0 L1.H1 L1.MLP L2.H2 L2.MLP": "L0.H0 L1.H1 L1.MLP L2.H2 L2.MLP",
}
UNITS = [tuple(map(Unit.parse, text.split())) for text in SETS]
PARTS = [tuple(map(Unit.parse, text.split())) for text in SETS.values()]


@lru_cache
def model_of(architecture: str) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=torch.float64)


def at(positions: str, length: int) -> list[int]:
    return {"all": list(range(length)), "not-first": list(range(1, length)), "answer": [length - 1]}[
        positions
    ]


def reference(
    plain: Plain, value: str, positions: str, donors: Sequence[FakeItem], sets: Sequence[tuple[Unit, ...]]
) -> dict[str, np.ndarray]:
    """The table that plain hooks give; `donors` are the calibration examples that "resample" drew."""
    plain.extra = tuple({unit for units in sets for unit in units if unit.kind in ("neuron", "expert")})
    calibration = [plain.record(item.prompt_ids) for item in CALIBRATION]

    def values(item: FakeItem, donor: FakeItem, unit: Unit, other: Record) -> Tensor:
        if value == "zero":
            return torch.zeros_like(calibration[0][unit][0])
        if value == "mean":
            return torch.cat([one[unit][at(positions, len(one[unit]))] for one in calibration]).mean(0)
        if value == "mean-positions":
            alike = [one[unit] for one in calibration if len(one[unit]) == len(item.prompt_ids)]
            return torch.stack(alike).mean(0)
        return other[unit]

    table: dict[str, list[list[float]]] = {"log_prob": [], "logit_diff": [], "prob_diff": []}
    for units in sets:
        rows = []
        for item, donor in zip(ITEMS, donors, strict=True):
            other = plain.record(donor.prompt_ids if value == "resample" else item.counterfactual_ids)
            new = {unit: values(item, donor, unit, other) for unit in units}
            rows.append(scores(plain.logits(item.prompt_ids, new, at(positions, len(item.prompt_ids))), item))
        for name, column in table.items():
            column.append([row[name] for row in rows])
    return {name: np.array(column) for name, column in table.items()}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "architecture",
    tiny.marked(
        ["gpt2", "gpt_neox", "llama", "gemma3_text", "olmo2", "falcon", "bloom", "mixtral", "gpt_oss"]
    ),
)
def test_ablation_is_what_plain_hooks_give(architecture: str, value: str) -> None:
    compare(architecture, value, UNITS, PARTS)


#: One expert after the other, all of a layer, and mixed with others; neurons likewise.
FINE = {
    "mixtral": "L0.E1/L2.E3/L1.E0 L1.E1 L1.E2 L1.E3/L0.E2 L1.H0 L2.E0 L2.E1",
    "olmoe": "L0.E1/L2.E3/L0.E2 L1.H0 L2.E0 L2.E1",
    "gpt_oss": "L0.E1/L2.E3/L0.E2 L1.H0 L2.E0 L2.E1",
    "qwen3_moe": "L0.E1/L2.E3/L1.N7/L0.E2 L1.N3 L1.N4 L2.E0 L2.E1",
    "llama": "L0.N5/L2.N23/L1.N0 L1.N1 L1.H2 L2.N4 L2.MLP/L1.N3 L2.N4 L2.N5",
    "gpt2": "L0.N5/L2.N23/L1.N3 L1.H2 L2.N4",
    "gpt_neox": "L0.N5/L2.N23/L1.N3 L1.H2 L2.N4",
    "gemma3_text": "L0.N5/L2.N23/L1.N3 L1.H2 L2.N4",
    "olmo2": "L0.N5/L2.N23/L1.N3 L1.H2 L2.N4",
    "falcon": "L0.N5/L2.N63/L1.N3 L1.H2 L2.N4",
    "bloom": "L0.N5/L2.N63/L1.N3 L1.H2 L2.N4",
    "phi": "L0.N5/L2.N23/L1.N3 L1.H2 L2.N4",
    "gptj": "L0.N5/L2.N23/L1.N3 L1.H2 L2.N4",
}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "architecture",
    [pytest.param(one, marks=() if one == "qwen3_moe" else pytest.mark.slow) for one in FINE],
)
def test_neurons_and_experts_are_what_plain_hooks_give(architecture: str, value: str) -> None:
    sets = [tuple(map(Unit.parse, text.split())) for text in FINE[architecture].split("/")]
    compare(architecture, value, sets, sets)


def compare(
    architecture: str, value: str, sets: Sequence[tuple[Unit, ...]], parts: Sequence[tuple[Unit, ...]]
) -> None:
    model = model_of(architecture)
    plain = Plain(model.module, architecture)
    for positions in POSITIONS:
        table = ablate(model, ITEMS, sets, value=value, positions=positions, calibration=CALIBRATION)
        by_index = {item.index: item for item in CALIBRATION}
        donors = [by_index[i] for i in table.choices.get("donors", ())] or ITEMS
        for name, expected in reference(plain, value, positions, donors, parts).items():
            np.testing.assert_allclose(table.columns[name], expected, rtol=0, atol=1e-11, err_msg=positions)
        assert table.choices["ablation"] == value
        assert table.choices["positions"] == positions
        assert not [text for text in table.choices["unchanged"] if "E" not in text]


@pytest.mark.parametrize("value", VALUES)
def test_batches_make_no_difference(value: str) -> None:
    model, items = model_of("llama"), random_items(7)
    run = lambda size: ablate(
        model, items, UNITS, value=value, positions="not-first", calibration=CALIBRATION, batch_size=size
    )
    together, single = run(None), run(1)
    for name, values in together.columns.items():
        np.testing.assert_allclose(values, single.columns[name], rtol=0, atol=1e-12, err_msg=name)


def test_a_mean_is_one_vector_per_unit_over_all_tokens() -> None:
    """Prompts of unequal length: every token counts once, and no unit gets another's mean."""
    model = model_of("llama")
    found = source(model, "mean", [Site(1, "head"), Site(2, "mlp")], ITEMS, calibration=CALIBRATION)
    values = found.of(plan(ITEMS, model)[0]).at
    plain = Plain(model.module, "llama")
    runs = [plain.record(item.prompt_ids) for item in CALIBRATION]
    for index in range(4):
        mean = torch.cat([run[Unit("head", 1, index)] for run in runs]).mean(0)
        torch.testing.assert_close(values[Site(1, "head")][0, 0, index], mean, rtol=0, atol=1e-14)
    mean = torch.cat([run[Unit("mlp", 2)] for run in runs]).mean(0)
    torch.testing.assert_close(values[Site(2, "mlp")][0, 0, 0], mean, rtol=0, atol=1e-14)
    assert found.choices == {"calibration": [[3, 6], [2, 9]]}


def test_means_are_taken_once_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same examples at the same positions; other layers of the same kind cost nothing more."""
    model = replace(model_of("gpt2"))  # with nothing kept
    runs: list[int] = []
    honest = values_module.record
    monkeypatch.setattr(values_module, "record", lambda *args: runs.append(1) or honest(*args))
    run = lambda text, **how: ablate(model, ITEMS, [(Unit.parse(text),)], calibration=CALIBRATION, **how)
    first = run("L1.H1", value="mean")
    assert len(runs) == 2  # one per length
    again, other = run("L1.H1", value="mean"), run("L2.H3", value="mean")
    assert len(runs) == 2
    assert np.array_equal(first.columns["log_prob"], again.columns["log_prob"])
    fresh = ablate(replace(model), ITEMS, [(Unit("head", 2, 3),)], value="mean", calibration=CALIBRATION)
    assert np.array_equal(other.columns["log_prob"], fresh.columns["log_prob"])
    runs.clear()
    run("L1.H1", value="mean-positions")
    run("L1.MLP", value="mean")
    run("L1.H1", value="mean", positions="answer")
    assert len(runs) == 6
    run("L0.H1", value="mean-positions")
    assert len(runs) == 6


def test_means_of_a_float32_model_do_not_depend_on_the_batches() -> None:
    model = tiny.build_loaded("gpt2")
    run = lambda size: (
        source(model, "mean", [Site(1, "head")], ITEMS, calibration=CALIBRATION, batch_size=size)
        .of(plan(ITEMS, model)[0])
        .at[Site(1, "head")]
    )
    torch.testing.assert_close(run(None), run(1), rtol=1e-6, atol=1e-7)


def test_the_counterfactual_of_everything_is_the_counterfactual_run() -> None:
    """Every head and MLP and the token at the answer position are the counterfactual's, so is what comes out."""
    model = model_of("gpt2")
    items = [
        replace(item, counterfactual_ids=(*item.counterfactual_ids[:-1], item.prompt_ids[-1]))
        for item in ITEMS
    ]
    everything = model.layout.universe("all")
    table = ablate(model, items, [everything], value="counterfactual")
    other = ablate(model, [replace(item, prompt_ids=item.counterfactual_ids) for item in items], [()])
    for name, values in table.columns.items():
        np.testing.assert_allclose(values, other.columns[name], rtol=0, atol=1e-12)


def test_the_own_prompt_as_counterfactual_changes_nothing_and_is_said() -> None:
    model = model_of("llama")
    items = [replace(item, counterfactual_ids=item.prompt_ids) for item in ITEMS]
    units = (Unit("head", 1, 2), Unit("mlp", 2))
    table = ablate(model, items, [(), units], value="counterfactual")
    assert table.choices["unchanged"] == ["L1.H2", "L2.MLP"]
    np.testing.assert_allclose(table.columns["log_prob"][1], table.columns["log_prob"][0], rtol=0, atol=1e-12)


def test_resampled_prompts_are_drawn_per_example_and_recorded() -> None:
    model, pool = (
        model_of("gpt2"),
        [replace(one, index=100 + i) for i, one in enumerate(random_items(40, seed=3))],
    )
    run = lambda items, seed=0: ablate(
        model, items, [UNITS[1]], value="resample", calibration=pool, seed=seed
    )
    items = random_items(8)
    table = run(items)
    length = {one.index: len(one.prompt_ids) for one in pool}
    donors = table.choices["donors"]
    assert [length[i] for i in donors] == [len(item.prompt_ids) for item in items]
    assert len(set(donors)) > 4
    assert table.choices["seed"] == 0
    assert run(items[3:]).choices["donors"] == donors[3:]
    other = run(items, seed=1)
    assert other.choices["donors"] != donors
    assert not np.array_equal(other.columns["log_prob"], table.columns["log_prob"])


@pytest.mark.parametrize("value", ["mean", "mean-positions", "resample"])
def test_calibration_examples_must_be_there_and_held_out(value: str) -> None:
    model = model_of("gpt2")
    with pytest.raises(UsageError, match=f"'{value}' without calibration examples"):
        ablate(model, ITEMS, [()], value=value)
    with pytest.raises(UsageError, match="2 of the 7 calibration prompts are among the examples"):
        ablate(model, ITEMS, [()], value=value, calibration=[*CALIBRATION, *ITEMS[:2]])
    # They are not looked at where nothing is taken from them.
    ablate(model, ITEMS, [()], value="counterfactual", calibration=ITEMS)


@pytest.mark.parametrize("value", ["mean-positions", "resample"])
def test_every_length_needs_calibration_examples(value: str) -> None:
    short = [item for item in CALIBRATION if len(item.prompt_ids) == 6]
    with pytest.raises(UsageError, match="the 9 prompt tokens of 1 of the examples"):
        ablate(model_of("gpt2"), ITEMS, [UNITS[1]], value=value, calibration=short)


def test_a_counterfactual_of_another_length_is_refused() -> None:
    items = [*ITEMS, replace(ITEMS[0], counterfactual_ids=(3, 4))]
    with pytest.raises(UsageError, match="6 prompt tokens and 2 counterfactual tokens"):
        ablate(model_of("gpt2"), items, [UNITS[1]], value="counterfactual")


def test_a_prompt_without_the_positions_is_refused() -> None:
    items = [*ITEMS, replace(ITEMS[0], prompt_ids=(3,))]
    with pytest.raises(UsageError, match="one prompt token"):
        ablate(model_of("gpt2"), items, [UNITS[1]], positions="not-first")


@pytest.mark.parametrize("value", VALUES)
def test_a_lab_takes_values_from_its_discovery_examples(value: str) -> None:
    model = model_of("gpt2")
    data = replace(task_data(), discover=tuple(CALIBRATION), evaluate=tuple(ITEMS))  # type: ignore[arg-type]
    lab = Lab(model, data)
    found = lab.outcomes(UNITS, value=value, positions="not-first")
    expected = ablate(model, ITEMS, UNITS, value=value, positions="not-first", calibration=CALIBRATION)
    assert found.choices == expected.choices
    for name, values in expected.columns.items():
        assert np.array_equal(found.columns[name], values)
    assert lab.outcomes(UNITS, value=value, positions="not-first") is found
    assert lab.outcomes(UNITS, value=value) is not found
