"""The preflight passes true adapters and refuses each way of breaking one, naming the layer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from circuittest.errors import CircuittestError, InterventionError
from circuittest.models.adapters import adapter_for
from circuittest.models.hooks import count
from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module
from circuittest.models.preflight import Check, preflight, require
from tests.helpers.tiny import ARCHITECTURES, RELATIVES, build, build_loaded, tokens

NAMES = (
    "repeatable",
    "hooks are neutral",
    "inputs",
    "writes",
    "heads",
    "q, k and v",
    "neurons",
    "logits",
    "canary",
    "padding",
)


def failed(model: LoadedModel) -> Check:
    checks = preflight(model)
    assert not checks[-1].passed, [check.name for check in checks]
    assert all(check.passed for check in checks[:-1])
    assert checks[-1].do
    return checks[-1]


def broken(architecture: str, **changes: Any) -> LoadedModel:
    """A model under an adapter that is wrong about it."""
    module = build(architecture)
    return from_module(module, adapter=replace(adapter_for(module.config.model_type), **changes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_true_adapters_pass(architecture: str, dtype: torch.dtype) -> None:
    checks = preflight(build_loaded(architecture, dtype=dtype))
    assert tuple(check.name for check in checks) == NAMES
    assert all(check.passed and not check.do for check in checks), checks
    require(checks)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", RELATIVES)
def test_relatives_of_an_architecture_pass_in_half_precision(architecture: str, dtype: torch.dtype) -> None:
    require(preflight(build_loaded(architecture, dtype=dtype)))


def test_prompts_of_a_task_can_be_used() -> None:
    items = [SimpleNamespace(prompt_ids=tuple(tokens(1, length)[0].tolist())) for length in (5, 40, 8)]
    assert all(check.passed for check in preflight(build_loaded("gemma3_text"), items))


@pytest.mark.parametrize(
    ("architecture", "changes", "name", "detail"),
    [
        ("llama", {"attn_norm": "post_attention_layernorm", "mlp_norm": "input_layernorm"}, "inputs", "L0"),
        ("llama", {"final_norm": "model.layers.0.input_layernorm"}, "inputs", "what comes next"),
        ("llama", {"attn_norm": None}, "inputs", "L0: the attention module does not read"),
        ("llama", {"parallel": True}, "inputs", "L0: the MLP's norm does not read the block's input"),
        (
            "gpt_neox",
            {"parallel": False},
            "inputs",
            "L0: the MLP's norm does not read the residual after attention",
        ),
        ("gpt_neox_sequential", {"parallel": True}, "inputs", "L0: the MLP's norm"),
        ("gemma3_text", {"attn_post_norm": None}, "inputs", "L0: the MLP's norm"),
        ("gemma3_text", {"mlp_post_norm": None}, "writes", "a norm after a sublayer"),
        ("gpt2", {"mlp": "mlp.c_fc"}, "inputs", "'mlp.c_fc' gives shape"),
        ("llama", {"k": "self_attn.v_proj", "v": "self_attn.k_proj"}, "q, k and v", "without L0.KV0.v"),
        ("gpt2", {"fused": "grouped"}, "q, k and v", "changing L0.H"),
        ("gpt_neox", {"fused": "stacked"}, "q, k and v", "changing L0.H"),
        ("gpt2", {"down": "attn.c_proj"}, "neurons", "L0: 'attn.c_proj' is not the MLP's last step"),
    ],
)
def test_a_wrong_adapter_is_refused(
    architecture: str, changes: dict[str, Any], name: str, detail: str
) -> None:
    check = failed(broken(architecture, **changes))
    assert check.name == name
    assert detail in check.detail
    with pytest.raises(InterventionError, match="Register an adapter"):
        require([check])


def test_another_projection_of_the_mlp_is_refused_while_wrapping() -> None:
    with pytest.raises(CircuittestError, match="L0.*'mlp.up_proj'.*contradicts"):
        broken("llama", down="mlp.up_proj")


def test_a_last_projection_that_mixes_its_neurons_is_refused() -> None:
    module = build("gpt2")
    last = module.transformer.h[1].mlp.c_proj
    plain = last.forward
    last.forward = lambda z: plain(z / z.norm(dim=-1, keepdim=True))
    check = failed(from_module(module))
    assert check.name == "neurons"
    assert "L1: 'mlp.c_proj' is not the sum of its neurons' parts" in check.detail


def test_mixtures_are_checked_expert_by_expert() -> None:
    names = [check.name for check in preflight(build_loaded("qwen3_moe"))]
    assert {"neurons", "experts", "mixture"} < set(names)  # it has a plain MLP between two mixtures
    assert "neurons" not in {check.name for check in preflight(build_loaded("mixtral"))}


def ignores_weights(experts: nn.Module) -> None:
    plain = experts.forward
    experts.forward = lambda x, chosen, weights: plain(x, chosen, torch.full_like(weights, 0.5))


def adds_in_common(experts: nn.Module) -> None:
    plain = experts.forward
    experts.forward = lambda x, chosen, weights: plain(x, chosen, weights) + x


def chooses_twice(experts: nn.Module) -> None:
    experts.register_forward_pre_hook(lambda m, args: (args[0], torch.zeros_like(args[1]), args[2]))


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (ignores_weights, "experts of 'mlp.experts' without weight add something"),
        (adds_in_common, "'mlp.experts' is not the sum of its experts' parts"),
        (chooses_twice, "the chosen experts are not distinct numbers below 4"),
    ],
)
def test_experts_that_cannot_be_told_apart_are_refused(change: Any, detail: str) -> None:
    module = build("mixtral")
    change(module.model.layers[1].mlp.experts)
    check = failed(from_module(module))
    assert check.name == "experts"
    assert f"L1: {detail}" in check.detail


def test_a_mixture_with_an_expert_for_all_is_refused() -> None:
    module = build("mixtral")
    mlp = module.model.layers[2].mlp
    plain = mlp.forward
    mlp.forward = lambda x: plain(x) + 0.1 * x
    check = failed(from_module(module))
    assert check.name == "experts"
    assert "L2: what 'mlp.experts' gives is not the MLP's output" in check.detail


def test_experts_called_in_another_way_are_not_offered() -> None:
    module = build("mixtral")
    block = module.model.layers[0]
    plain = block.mlp.experts.forward
    block.mlp.experts.forward = lambda x, chosen, weights, extra=None: plain(x, chosen, weights)
    model = from_module(module)
    assert model.layout.n_experts == (0, 4, 4)
    assert preflight(model)[-1].passed


def test_swapped_q_and_k_of_equal_size_are_refused() -> None:
    module = build("llama", num_key_value_heads=4)
    swapped = replace(adapter_for("llama"), q="self_attn.k_proj", k="self_attn.q_proj")
    check = failed(from_module(module, adapter=swapped))
    assert check.name == "q, k and v"
    assert "L0.H0.q at position 4 changes head H0 at position" in check.detail


def test_swapped_q_and_k_of_unequal_size_are_refused_while_wrapping() -> None:
    with pytest.raises(CircuittestError, match="L0.*'self_attn.k_proj'.*contradicts"):
        broken("llama", q="self_attn.k_proj", k="self_attn.q_proj")


def test_one_wrong_layer_among_right_ones_is_named() -> None:
    module = build("llama")
    block = module.model.layers[2]
    forward = block.forward
    block.forward = lambda *args, **kwargs: 1.01 * forward(*args, **kwargs)
    check = failed(from_module(module))
    assert check.name == "writes"
    assert "layer L2" in check.detail


def test_an_output_projection_that_is_not_the_last_step_is_refused() -> None:
    module = build("llama")
    attention = module.model.layers[1].self_attn
    forward = attention.forward

    def gated(*args: Any, **kwargs: Any) -> Any:
        output, *rest = forward(*args, **kwargs)
        return (output * 0.5, *rest)

    attention.forward = gated
    check = failed(from_module(module))
    assert check.name == "writes"
    assert "L1" in check.detail
    assert "not the attention's last step" in check.detail


class Scaled(nn.Module):
    """A model whose logits are scaled after the unembedding, as Granite's and Cohere's are."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.model, self.lm_head, self.config = inner.model, inner.lm_head, inner.config
        self.get_input_embeddings, self.get_output_embeddings = (
            inner.get_input_embeddings,
            lambda: self.lm_head,
        )

    def forward(self, **kwargs: Any) -> Any:
        kwargs.pop("use_cache")
        return SimpleNamespace(
            logits=self.lm_head(self.model(**kwargs, use_cache=False).last_hidden_state) / 8
        )


def test_rescaled_logits_are_refused() -> None:
    check = failed(from_module(Scaled(build("llama"))))
    assert check.name == "logits"
    assert "rescales" in check.do


def test_soft_capped_logits_are_understood() -> None:
    model = build_loaded("gemma3_text", final_logit_softcapping=5.0)
    assert all(check.passed for check in preflight(model))


def test_an_ignored_mask_is_refused() -> None:
    model = build_loaded("llama")
    forward = model.module.forward
    model.module.forward = lambda **kwargs: forward(
        **{**kwargs, "attention_mask": None, "position_ids": None}
    )
    check = failed(model)
    assert check.name == "padding"
    assert "left" in check.detail


def test_absolute_positions_need_position_ids() -> None:
    model = build_loaded("gpt2")
    forward = model.module.forward
    model.module.forward = lambda **kwargs: forward(**{**kwargs, "position_ids": None})
    assert failed(model).name == "padding"


def test_a_model_that_does_not_repeat_itself_is_refused() -> None:
    module = build("llama")
    module.model.layers[0].mlp.register_forward_hook(lambda _, __, output: nn.functional.dropout(output, 0.5))
    check = failed(from_module(module))
    assert check.name == "repeatable"
    assert "dropout" in check.do


def test_a_dead_layer_passes_with_a_note() -> None:
    module = build("llama")
    with torch.no_grad():
        module.model.layers[1].self_attn.o_proj.weight.zero_()
    checks = preflight(from_module(module))
    assert all(check.passed for check in checks)
    assert "L1.ATTN write nothing" in next(check.detail for check in checks if check.name == "canary")


def test_dropout_of_a_module_in_training_is_off_while_measured_and_nothing_is_changed() -> None:
    module = build("gpt2", resid_pdrop=0.5, attn_pdrop=0.5, embd_pdrop=0.5).train()
    module.transformer.h[0].eval()
    module.transformer.h[1].requires_grad_(False)
    module.transformer.h[0].register_forward_hook(lambda *_: None)
    before = (
        [part.training for part in module.modules()],
        [parameter.requires_grad for parameter in module.parameters()],
        count(module),
    )
    assert all(check.passed for check in preflight(from_module(module)))
    after = (
        [part.training for part in module.modules()],
        [parameter.requires_grad for parameter in module.parameters()],
        count(module),
    )
    assert before == after
    assert all(parameter.grad is None for parameter in module.parameters())
