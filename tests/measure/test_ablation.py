"""ablate(): the same as editing weights, whatever the sets, batches and cached residuals."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

from circuittest.errors import InterventionError, UnitError, UsageError
from circuittest.measure import ablation, suffix
from circuittest.measure.ablation import ablate, canary
from circuittest.measure.suffix import Shortcuts, clean_run, resume, shortcuts
from circuittest.models.hooks import count
from circuittest.models.loaded import LoadedModel
from circuittest.tables import OutcomeTable
from circuittest.units import Unit
from tests.helpers import tiny
from tests.helpers.edited import without
from tests.helpers.items import random_items

VARIANTS = {
    **{name: (name, {}) for name in tiny.EVERY},
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-mqa": ("llama", {"num_key_value_heads": 1}),
}
#: Their attention modules add the residual themselves.
ADD_IN_ATTENTION = ("bloom",)
SETS = tuple(
    tuple(Unit.parse(text) for text in texts.split())
    for texts in (
        "",
        "L0.H1",
        "L2.MLP",
        "L1.H0 L2.H3 L0.MLP",
        "L1.KV0",
        "L2.ATTN",
        "L2.H3",
        "L1.MLP L1.ATTN",
        "L0.H0 L0.H2 L1.H1 L1.MLP L2.H2 L2.MLP",
        "L1.H0 L1.H1 L2.H0",
    )
)

MLP = (Unit("mlp", 1),)


@lru_cache
def model_of(variant: str) -> LoadedModel:
    architecture, config = VARIANTS[variant]
    return tiny.build_loaded(architecture, dtype=torch.float64, **config)


def assert_equal(found: OutcomeTable, row: int, expected: OutcomeTable, other: int = 0) -> None:
    assert set(found.columns) == set(expected.columns)
    for name, values in found.columns.items():
        np.testing.assert_allclose(
            values[row],
            expected.columns[name][other],
            rtol=0,
            atol=1e-12,
            err_msg=f"{name}, {found.sets[row]}",
        )


@pytest.mark.parametrize("variant", tiny.marked(VARIANTS))
def test_ablation_is_editing_weights(variant: str) -> None:
    model, items = model_of(variant), random_items(5)
    table = ablate(model, items, SETS)
    assert table.sets == tuple(tuple(sorted(units)) for units in SETS)
    assert table.examples == tuple(item.index for item in items)
    for row, units in enumerate(SETS):
        assert_equal(table, row, ablate(without(model, units), items, [()]))
    assert len({round(float(table.columns["log_prob"][row].sum()), 9) for row in range(len(SETS))}) == len(
        SETS
    )


@pytest.mark.parametrize("variant", tiny.marked(VARIANTS))
def test_ablation_of_neurons_and_experts_is_editing_weights(variant: str) -> None:
    """One, all of a layer, and some of several layers beside a head and an MLP."""
    model, items = model_of(variant), random_items(3)
    fine = model.layout.units(("expert", "neuron"))
    last = [unit for unit in fine if unit.layer == 2]
    mixed = (fine[1], fine[len(fine) // 2], last[1], last[2], Unit("head", 1, 2), Unit("mlp", 0))
    sets = [(), (fine[0],), (last[-1],), tuple(last), mixed]
    table = ablate(model, items, sets)
    for row, units in enumerate(sets):
        assert_equal(table, row, ablate(without(model, units), items, [()]))
    # An expert may not be chosen where it is read.
    assert len({round(float(values.sum()), 9) for values in table.columns["log_prob"]}) >= len(sets) - 1


def test_an_mlp_is_ablated_with_its_neurons() -> None:
    model, items = model_of("bloom"), random_items(2)  # whose MLP writes at the neurons' projection
    table = ablate(model, items, [MLP, (*MLP, Unit("neuron", 1, 3))])
    assert np.array_equal(table.columns["log_prob"][0], table.columns["log_prob"][1])


@pytest.mark.parametrize("variant", ["llama", "gpt_neox", "gpt2", "gemma3_text"])
def test_many_sets_are_one_by_one(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, items = model_of(variant), random_items(5)
    together = ablate(model, items, SETS)
    for row, units in enumerate(SETS):
        assert_equal(together, row, ablate(model, items, [units], batch_size=1))
    monkeypatch.setattr(ablation, "PASS_TOKENS", 1)  # one set in each pass
    single = ablate(model, items, SETS)
    for row in range(len(SETS)):
        assert_equal(together, row, single, row)


def test_the_order_of_sets_is_kept_and_equal_sets_are_one() -> None:
    model, items = model_of("llama"), random_items(3)
    group, heads = (Unit("kv", 1, 1),), (Unit("head", 1, 3), Unit("head", 1, 2), Unit("head", 1, 3))
    table = ablate(model, items, [heads, (), group])
    assert table.sets == ((Unit("head", 1, 2), Unit("head", 1, 3)), (), group)
    assert np.array_equal(table.columns["log_prob"][0], table.columns["log_prob"][2])
    assert not np.array_equal(table.columns["log_prob"][0], table.columns["log_prob"][1])


@pytest.mark.parametrize("variant", tiny.marked(VARIANTS))
def test_a_resumed_run_is_the_whole_run(variant: str) -> None:
    model = model_of(variant)
    ids = tiny.tokens(3, 8)
    run = clean_run(model, ids, range(model.layout.n_layers))
    whole = model.trunk(ids).last_hidden_state
    for layer in range(model.layout.n_layers):
        with torch.no_grad(), resume(model, layer, run.residuals[layer], tuples=run.tuples):
            # Other ids: what comes before the layer must be the cached residual, not these.
            resumed = model.trunk(torch.full_like(ids, 5) if layer else ids).last_hidden_state
        torch.testing.assert_close(resumed, whole, rtol=0, atol=1e-12)
        assert not any("forward" in block.block.__dict__ for block in model.blocks)


def test_blocks_that_return_tuples_can_be_resumed() -> None:
    module = tiny.build("gpt2", dtype=torch.float64)
    expected = ablate(tiny.wrap(module), random_items(3), SETS)
    for block in module.transformer.h:
        plain = block.forward
        block.forward = lambda *a, plain=plain, **k: (plain(*a, **k),)
    trunk = module.transformer
    inner = trunk.forward

    def unpacking(*args: object, **kwargs: object) -> object:
        handles = [b.register_forward_hook(lambda m, a, out: out[0]) for b in list(trunk.h)]
        try:
            return inner(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()

    trunk.forward = unpacking
    found = ablate(tiny.wrap(module), random_items(3), SETS)
    for row in range(len(SETS)):
        assert_equal(found, row, expected, row)
    assert all("forward" in block.__dict__ for block in module.transformer.h)  # what was there is back


def test_a_wrong_residual_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = suffix.clean_run

    def wrong(*args: Any) -> suffix.CleanRun:
        run = honest(*args)
        changed = {
            layer: tensor + 1e-6 * torch.randn(tensor.shape) for layer, tensor in run.residuals.items()
        }
        return replace(run, residuals=changed)

    monkeypatch.setattr(suffix, "clean_run", wrong)
    with pytest.raises(InterventionError, match="resumed at layer L2 differs"):
        ablate(model_of("gpt2"), random_items(2), [()])


@pytest.mark.parametrize("variant", tiny.marked(VARIANTS))
def test_the_shortcuts_change_nothing(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, items = model_of(variant), random_items(5)
    found = shortcuts(model, tiny.tokens(1, 7))
    assert found.cut
    assert found.heads == (variant not in ADD_IN_ATTENTION)
    short = ablate(model, items, SETS)
    monkeypatch.setattr(ablation, "shortcuts", lambda *_: Shortcuts(cut=False, heads=False))
    whole = ablate(model, items, SETS)
    for row in range(len(SETS)):
        assert_equal(short, row, whole, row)


def test_blocks_that_need_all_positions_get_them() -> None:
    module = tiny.build("gpt2", dtype=torch.float64)
    expected = ablate(tiny.wrap(module), random_items(3), SETS)
    mlp = module.transformer.h[2].mlp
    plain = mlp.forward

    def flat(x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] == 1:
            raise ValueError("one position is not enough")
        return plain(x)

    mlp.forward = flat
    model = tiny.wrap(module)
    assert not shortcuts(model, tiny.tokens(1, 7)).cut
    found = ablate(model, random_items(3), SETS)
    for row in range(len(SETS)):
        assert_equal(found, row, expected, row)


def test_attention_that_does_more_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = tiny.build("llama", dtype=torch.float64)
    attention = module.model.layers[2].self_attn
    plain = attention.forward
    attention.forward = lambda *args, **kwargs: (1.5 * plain(*args, **kwargs)[0], None)
    model = tiny.wrap(module)
    assert not shortcuts(model, tiny.tokens(1, 7)).heads
    found = ablate(model, random_items(3), SETS)
    monkeypatch.setattr(ablation, "shortcuts", lambda *_: Shortcuts(cut=False, heads=False))
    expected = ablate(model, random_items(3), SETS)
    for row in range(len(SETS)):
        assert_equal(found, row, expected, row)


def test_blocks_are_restored_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build_loaded("gpt2")

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ablation, "last_rows", fail)
    with pytest.raises(KeyboardInterrupt):
        ablate(model, random_items(2), [(Unit("head", 2, 0),)])
    assert not any("forward" in block.block.__dict__ for block in model.blocks)
    assert count(model.module) == 0


def test_the_model_is_left_as_it_was() -> None:
    module = tiny.build("llama").train()
    before = {name: parameter.clone() for name, parameter in module.named_parameters()}
    handle = module.model.layers[1].mlp.register_forward_hook(lambda *_: None)
    ablate(tiny.wrap(module), random_items(3), SETS)
    assert count(module) == 1  # the caller's own hook
    handle.remove()
    assert all(part.training for part in module.modules())
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_quantised_models_can_be_ablated() -> None:
    model = tiny.build_loaded("gpt2")
    expected = ablate(model, random_items(3), SETS)
    found = ablate(replace(model, quantised=True), random_items(3), SETS)
    assert np.array_equal(found.columns["log_prob"], expected.columns["log_prob"])


def test_foils_are_optional() -> None:
    items = [*random_items(3), *random_items(1, foils=False, seed=5)]
    assert set(ablate(model_of("gpt2"), items, [()]).columns) == {"argmax", "log_prob", "prob_diff"}


def test_refusals() -> None:
    model, items = model_of("gpt2"), random_items(2)
    with pytest.raises(UsageError, match="unknown ablation value 'median'"):
        ablate(model, items, [()], value="median")
    with pytest.raises(UsageError, match="unknown positions 'last'"):
        ablate(model, items, [()], positions="last")
    with pytest.raises(UsageError, match="no sets"):
        ablate(model, items, [])
    with pytest.raises(UnitError, match=r"no L0\.H9"):
        ablate(model, items, [(Unit("head", 0, 9),)])
    with pytest.raises(UsageError, match="logits cannot be ablated"):
        ablate(model, items, [(Unit("logits"),)])
    with pytest.raises(UnitError, match=r"no L0\.N24"):
        ablate(model, items, [(Unit("neuron", 0, 24),)])
    with pytest.raises(UnitError, match=r"no L0\.E3: none of its layers is a mixture of experts"):
        ablate(model, items, [(Unit("expert", 0, 3),)])
    with pytest.raises(UsageError, match="no examples"):
        ablate(model, [], [()])


@pytest.mark.parametrize("architecture", tiny.marked(tiny.EVERY))
def test_the_canary_sees_the_residual_move(architecture: str) -> None:
    model = model_of(architecture)
    for layer in (None, 0, model.layout.n_layers - 1):
        moved, noise = canary(model, random_items(1)[0], layer=layer)
        assert moved > 1e-3
        assert noise < 1e-12


def test_the_canary_dies_when_attention_writes_nothing() -> None:
    dead = without(model_of("gpt2"), [Unit("attn", 1)])
    with pytest.raises(InterventionError, match=r"ablating L1\.ATTN moved nothing"):
        canary(dead, random_items(1)[0], layer=1)
