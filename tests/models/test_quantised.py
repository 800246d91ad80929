"""4-bit weights on a real kernel: ablation is exact on that kernel, gradients are refused. Needs bitsandbytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

from circuittest.errors import UnsupportedModel
from circuittest.measure.ablation import ablate
from circuittest.measure.attribution import attribute
from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module
from circuittest.models.preflight import require
from tests.helpers.items import random_items

pytest.importorskip(
    "bitsandbytes", reason="4-bit weights need bitsandbytes (pip install circuittest[quantised])"
)
ITEMS = random_items(5)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=120,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    four_bit = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32)
    module = AutoModelForCausalLM.from_pretrained(folder, quantization_config=four_bit, device_map="cpu")
    return from_module(module.eval(), name="4-bit")


def test_is_known_as_quantised_and_passes_the_preflight(model: LoadedModel) -> None:
    assert model.quantised
    assert (model.layout.n_heads, model.layout.n_kv_heads, model.head_dim) == (4, 2, 32)
    require(model.checks)


def test_ablation_equals_a_plain_hook_on_the_same_kernel(model: LoadedModel) -> None:
    heads = model.layout.units(("head",))
    sets = [(heads[1],), (heads[1], heads[6], model.layout.units(("mlp",))[0])]
    found = ablate(model, ITEMS, sets).measure("log_prob")

    def zero_head(index: int):
        def hook(_module, args):
            z = args[0].clone()
            z[..., index * 32 : (index + 1) * 32] = 0
            return (z,)

        return hook

    layers = model.module.model.layers
    for row, units in enumerate(sets):
        handles = [
            layers[unit.layer].self_attn.o_proj.register_forward_pre_hook(zero_head(unit.index))
            for unit in units
            if unit.kind == "head"
        ]
        handles += [
            layers[unit.layer].mlp.register_forward_hook(lambda _m, _a, out: torch.zeros_like(out))
            for unit in units
            if unit.kind == "mlp"
        ]
        with torch.no_grad():
            for column, item in enumerate(ITEMS):
                logs = model.module(torch.tensor([item.prompt_ids])).logits[0, -1].log_softmax(-1)
                expected = float(logs[list(item.answer_ids)].logsumexp(0))
                # rows of a batch and single rows round differently in this kernel
                assert found[row, column] == pytest.approx(expected, abs=0.02)
        for handle in handles:
            handle.remove()


def test_gradients_are_refused_with_the_reason(model: LoadedModel) -> None:
    with pytest.raises(UnsupportedModel, match="4-bit is quantised: gradients through rounded weights"):
        attribute(model, ITEMS, metric="log_prob")
