"""Proof of intervention: whatever keeps a unit from being ablated is noticed, and the unit is named."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from torch import Tensor, nn

from circuittest.errors import InterventionError, UnsupportedModel
from circuittest.measure import interventions, sites
from circuittest.measure.ablation import ablate
from circuittest.measure.interventions import POSITIONS
from circuittest.measure.sites import Site, record
from circuittest.measure.values import VALUES
from circuittest.models.hooks import count
from circuittest.models.loaded import LoadedModel
from circuittest.units import Unit
from tests.helpers import tiny
from tests.helpers.items import random_items
from tests.helpers.plain import Plain

ITEMS = random_items(4)
CALIBRATION = random_items(5, seed=3)
HEADS = (Unit("head", 1, 2), Unit("head", 2, 0))
MLP = (Unit("mlp", 1),)


@lru_cache
def model_of(architecture: str, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=dtype)


@pytest.mark.parametrize("architecture", tiny.marked(tiny.EVERY))
@pytest.mark.parametrize("quantised", [False, True])
def test_a_hook_that_does_nothing(
    architecture: str, quantised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = replace(model_of(architecture), quantised=quantised)
    monkeypatch.setattr(interventions, "replaced", lambda apart, *_: apart.clone())
    with pytest.raises(InterventionError, match=r"L1\.H2 was not ablated"):
        ablate(model, ITEMS, [HEADS])
    with pytest.raises(InterventionError, match=r"L1\.MLP was not ablated"):
        ablate(model, ITEMS, [MLP])
    assert count(model.module) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("architecture", tiny.marked(tiny.EVERY))
def test_honest_ablations_pass_in_every_dtype(architecture: str, dtype: torch.dtype) -> None:
    model = model_of(architecture, dtype)
    table = ablate(model, ITEMS, [HEADS, MLP, (*HEADS, *MLP), ()])
    assert table.choices["unchanged"] == []


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("architecture", tiny.marked(["gemma3_text", "falcon", "bloom", "gpt_oss"]))
def test_honest_values_pass_in_half_precision(architecture: str, value: str) -> None:
    model = model_of(architecture, torch.bfloat16)
    for positions in POSITIONS:
        table = ablate(
            model,
            ITEMS,
            [(*HEADS, *MLP)],
            value=value,
            positions=positions,
            calibration=CALIBRATION,
        )
        assert table.choices["unchanged"] == []


@pytest.mark.parametrize("unit", ["L1.H2", "L2.H0", "L1.MLP"])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("positions", POSITIONS)
def test_another_value_than_asked_for_is_noticed(
    value: str, positions: str, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest difference, at one position of one example."""
    model = model_of("llama")
    honest = interventions.replaced

    def almost(apart: Tensor, mask: Tensor, value: Tensor, start: int) -> Tensor:
        new = honest(apart, mask, value, start)
        index = int(mask[0].nonzero()[0])
        last = new[0, -1, -1, index]
        last[0] = torch.nextafter(last[0], torch.tensor(9.0))
        return new

    monkeypatch.setattr(interventions, "replaced", almost)
    with pytest.raises(InterventionError, match=rf"{unit} was not ablated.*not what was asked for"):
        ablate(
            model,
            ITEMS,
            [(Unit.parse(unit),)],
            value=value,
            positions=positions,
            calibration=CALIBRATION,
        )


@pytest.mark.parametrize(
    ("positions", "wrong"), [("not-first", 0), ("answer", 1), ("all", 1), ("not-first", 2)]
)
def test_other_positions_than_asked_for_are_noticed(
    positions: str, wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of("llama")
    honest = interventions.replaced
    monkeypatch.setattr(
        interventions, "replaced", lambda apart, mask, value, start: honest(apart, mask, value, wrong)
    )
    for units in (HEADS, MLP):
        with pytest.raises(InterventionError, match="was not ablated.*not what was asked for"):
            ablate(model, ITEMS, [units], positions=positions)


def test_values_that_are_not_finite_are_named() -> None:
    """The clean run is finite; what follows another ablation is not."""
    module = tiny.build("llama")
    values = module.model.layers[2].self_attn.v_proj
    values.register_forward_hook(lambda m, args, out: out + torch.inf if len(out) > 1 else out)
    with pytest.raises(InterventionError, match=r"L2\.H1 is not finite.*float32"):
        ablate(tiny.wrap(module), random_items(1), [(Unit("head", 2, 0),), HEADS])
    values.register_forward_hook(lambda m, args, out: out + torch.inf)
    with pytest.raises(InterventionError, match="output is not finite"):
        ablate(tiny.wrap(module), ITEMS, [HEADS])


def test_one_unit_of_many_that_is_not_ablated_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    honest = interventions.replaced

    def forgetful(apart: Tensor, mask: Tensor, value: Tensor, start: int) -> Tensor:
        mask = mask.clone()
        mask[1, 3] = False
        return honest(apart, mask, value, start)

    monkeypatch.setattr(interventions, "replaced", forgetful)
    all_heads = tuple(Unit("head", 1, i) for i in range(4))
    with pytest.raises(InterventionError, match=r"L1\.H3 was not ablated"):
        ablate(model, ITEMS, [all_heads[:2], all_heads])


def test_heads_outside_the_set_stay_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build_loaded("llama")
    monkeypatch.setattr(interventions, "replaced", lambda apart, *_: torch.zeros_like(apart))
    with pytest.raises(InterventionError, match=r"ablating L1\.H0 changed L1\.H1, which is not in the set"):
        ablate(model, ITEMS, [(Unit("head", 1, 0),)])


def test_a_projection_that_ignores_its_ablated_input() -> None:
    """The forward of the projection adds the lost part back, as an adapter with aliased tensors once did."""
    module = tiny.build("llama")
    out = module.model.layers[1].self_attn.o_proj
    seen: list[Tensor] = []
    out.register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    plain = type(out).forward
    out.forward = lambda z: plain(out, seen[-1] if seen else z)
    with pytest.raises(InterventionError, match=r"L1\.H2 was not ablated.*1\.00 of the unit's write is left"):
        ablate(tiny.wrap(module), ITEMS, [HEADS])


def test_a_block_that_adds_an_mlp_of_its_own() -> None:
    """The module's output is zeroed, but the block has a second way to the residual."""
    module = tiny.build("llama")
    block = module.model.layers[1]
    plain = block.forward

    def forward(hidden_states: Tensor, *args: object, **kwargs: object) -> Tensor:
        return plain(hidden_states, *args, **kwargs) + 0.1 * hidden_states

    block.forward = forward
    with pytest.raises(InterventionError, match=r"L1\.MLP was not ablated.*adds something else"):
        ablate(tiny.wrap(module), ITEMS, [MLP])


def test_a_projection_that_is_bypassed() -> None:
    module = tiny.build("llama")
    attention = module.model.layers[1].self_attn
    projection = attention.o_proj

    class Bypass(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return nn.functional.linear(z, projection.weight, projection.bias)

    plain, bypass = attention.forward, Bypass()

    def forward(*args: object, **kwargs: object) -> object:
        attention._modules["o_proj"] = bypass
        try:
            return plain(*args, **kwargs)
        finally:
            attention._modules["o_proj"] = projection

    attention.forward = forward
    with pytest.raises(InterventionError, match=r"output projection of L1 did not run once"):
        ablate(tiny.wrap(module), ITEMS, [HEADS])


def test_hooks_of_others_that_undo_the_ablation() -> None:
    """A hook registered while the ablation runs would see its zeros; one that restores them is noticed."""
    module = tiny.build("gpt2")
    out = module.transformer.h[1].attn.c_proj
    kept: list[Tensor] = []

    def undo(_: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        kept.append(args[0])
        return output + 1e-2

    out.register_forward_hook(undo)
    with pytest.raises(InterventionError, match=r"L1\.H2 was not ablated"):
        ablate(tiny.wrap(module), ITEMS, [HEADS])
    assert kept


def test_a_unit_that_writes_nothing_is_listed_as_unchanged() -> None:
    module = tiny.build("llama")
    layer = module.model.layers[1]
    with torch.no_grad():
        layer.self_attn.v_proj.weight[4:8] = 0.0  # KV head 1, so that heads 2 and 3 have z = 0
        layer.mlp.down_proj.weight.zero_()
    table = ablate(tiny.wrap(module), ITEMS, [(Unit("kv", 1, 1), *MLP), (Unit("head", 1, 0),)])
    assert table.choices["unchanged"] == ["L1.H2", "L1.H3", "L1.MLP"]


EXPERTS = (Unit("expert", 1, 0), Unit("expert", 1, 2), Unit("expert", 2, 1))


@pytest.mark.parametrize("value", VALUES)
def test_honest_ablations_of_experts_and_neurons_pass_in_half_precision(value: str) -> None:
    model = model_of("qwen3_moe", torch.bfloat16)
    units = (Unit("expert", 0, 1), Unit("expert", 2, 0), Unit("expert", 2, 3), Unit("neuron", 1, 7))
    for positions in POSITIONS:
        ablate(model, ITEMS, [units, units[:1]], value=value, positions=positions, calibration=CALIBRATION)


def test_an_expert_that_keeps_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interventions, "without", lambda call, removed: call)
    with pytest.raises(InterventionError, match=r"L1\.E\d was not ablated: its weight is not zero"):
        ablate(model_of("mixtral"), ITEMS, [EXPERTS])


def test_an_expert_outside_the_set_that_loses_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interventions, "without", lambda call, removed: call.only(torch.zeros_like(removed)))
    with pytest.raises(InterventionError, match=r"ablating L1\.E0 changed L1\.E\d, which is not in the set"):
        ablate(model_of("mixtral"), ITEMS, [EXPERTS])


def test_experts_that_get_other_positions_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interventions.Intervention, "start_of", lambda self, seen: 0)
    with pytest.raises(InterventionError, match=r"ablating L1\.E0 changed L1\.E"):
        ablate(model_of("mixtral"), ITEMS, [EXPERTS], positions="answer")


@pytest.mark.parametrize("value", ["mean", "mean-positions", "counterfactual", "resample"])
def test_experts_that_get_another_value_than_asked_for(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = interventions.Intervention._other_experts
    monkeypatch.setattr(
        interventions.Intervention,
        "_other_experts",
        lambda self, site, seen: 1.001 * honest(self, site, seen),
    )
    with pytest.raises(InterventionError, match=r"L1\.E0 was not ablated: what its mixture gives is not"):
        ablate(model_of("mixtral"), ITEMS, [EXPERTS], value=value, calibration=CALIBRATION)


def test_experts_that_add_without_weight() -> None:
    module = tiny.build("mixtral")
    experts = module.model.layers[1].mlp.experts
    plain = experts.forward
    experts.forward = lambda x, chosen, weights: plain(x, chosen, weights) + 1e-3 * x
    with pytest.raises(InterventionError, match=r"L1\.E0 was not ablated: what its mixture gives is not"):
        ablate(tiny.wrap(module), ITEMS, [EXPERTS])


def test_experts_that_were_not_chosen_are_listed_as_unchanged() -> None:
    model = model_of("mixtral", torch.float64)
    items = random_items(1)
    plain = Plain(model.module, "mixtral")
    plain.extra = model.layout.universe("experts")
    run = plain.record(items[0].prompt_ids)
    idle = [str(unit) for unit in plain.extra if unit.layer != 2 and not run[unit].abs().max() > 1e-12]
    assert idle
    found = ablate(model, items, [(unit,) for unit in plain.extra]).choices["unchanged"]
    assert [text for text in found if not text.startswith("L2")] == idle
    same = [replace(item, counterfactual_ids=item.prompt_ids) for item in ITEMS]
    found = ablate(model, same, [plain.extra], value="counterfactual").choices["unchanged"]
    assert found == [str(unit) for unit in plain.extra]


def test_an_mlp_that_returns_no_tensor_is_unsupported() -> None:
    module = tiny.build("llama")
    mlp = module.model.layers[1].mlp
    plain = mlp.forward
    model = tiny.wrap(module)
    mlp.forward = lambda x: {"output": plain(x)}
    with pytest.raises(UnsupportedModel, match="the MLP of layer L1 returns a dict"):
        record(model, tiny.tokens(1, 6), [Site(1, "mlp")])


def test_of_an_mlp_that_returns_a_tuple_the_first_element_is_replaced() -> None:
    hook = sites._output_hook(Site(1, "mlp"), torch.zeros_like)
    zeroed, scores = hook(None, (), (torch.ones(4, 6, 16), "scores"))
    assert not zeroed.any()
    assert scores == "scores"
