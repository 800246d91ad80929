"""Modules in memory: which are accepted, which are refused and how it says so, and that they are only looked at."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    BartConfig,
    BertConfig,
    BertModel,
    CLIPConfig,
    LlamaModel,
    MambaConfig,
    MambaForCausalLM,
    ModernBertConfig,
    T5Config,
    T5EncoderModel,
)

from circuittest.errors import LoadError, UnsupportedModel, UsageError
from circuittest.models import from_module, load_model
from circuittest.models.hooks import count
from circuittest.models.preflight import preflight
from tests.helpers.tiny import ARCHITECTURES, build, tokenizer, tokens

pytestmark = pytest.mark.usefixtures("offline")


def test_a_module_in_memory_is_only_looked_at() -> None:
    module = build("llama").train()
    module.model.layers[0].register_forward_hook(lambda *_: None)
    state = {name: weight.clone() for name, weight in module.state_dict().items()}
    model = from_module(module)
    assert model.module is module
    assert module.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in module.parameters())
    assert count(module) == 1
    assert all(torch.equal(weight, state[name]) for name, weight in module.state_dict().items())
    with model.measuring():
        assert not module.training
        assert not any(parameter.requires_grad for parameter in module.parameters())
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_training_on_after_wrapping_is_noticed() -> None:
    module = build("llama").train()
    model = from_module(module)
    module(input_ids=tokens(1, 5), labels=tokens(1, 5)).loss.backward()
    with model.measuring():
        pass  # gradients alone change nothing
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    with pytest.raises(UsageError, match="Wrap the module again"), model.measuring():
        pass
    assert module.training
    with from_module(module).measuring():
        pass


def test_the_caller_s_mixed_precision_and_inference_mode_end_where_measuring_begins() -> None:
    model = from_module(build("llama"))
    ids = tokens(1, 5)
    with model.measuring():
        own = model.module(ids).logits
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        with model.measuring():
            found = model.module(ids).logits
            assert not found.is_inference()
        assert torch.is_autocast_enabled("cpu")
        assert torch.is_inference_mode_enabled()
    assert torch.equal(found, own)


def test_load_model_wraps_a_module_as_it_is() -> None:
    module, words = build("gpt2"), tokenizer()
    model = load_model(module, tokenizer=words)
    assert model.module is module
    assert model.tokenizer is words
    assert model.name == "in-memory"


def test_compiled_and_parallel_wrappers_are_looked_through() -> None:
    module = build("llama")
    assert from_module(nn.DataParallel(module)).module is module
    assert from_module(torch.compile(module, backend="eager")).module is module


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(2, 2), "Linear is not a Hugging Face causal language model"),
        (SimpleNamespace(config=SimpleNamespace(model_type="mamba")), "no adapter for model type 'mamba'"),
        (SimpleNamespace(config=T5Config()), "'t5' is an encoder–decoder"),
        (SimpleNamespace(config=BertConfig()), "'bert' is an encoder"),
        (SimpleNamespace(config=BartConfig()), "'bart' is an encoder–decoder"),
        (SimpleNamespace(config=ModernBertConfig()), "'modernbert' is an encoder"),
        (SimpleNamespace(config=T5Config(is_encoder_decoder=False)), "'t5' is no causal language model"),
        (SimpleNamespace(config=CLIPConfig()), "'clip' is no causal language model.*a part of this one"),
    ],
)
def test_other_architectures_are_refused_by_name(module: Any, message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        from_module(module)


def test_real_modules_of_other_architectures_are_refused() -> None:
    bert = BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=9))
    with pytest.raises(UnsupportedModel, match="'bert' is an encoder"):
        from_module(bert)
    with pytest.raises(UnsupportedModel, match="'t5' is"):
        from_module(
            T5EncoderModel(T5Config(d_model=8, d_ff=8, d_kv=4, num_layers=1, num_heads=2, vocab_size=9))
        )
    mamba = MambaForCausalLM(MambaConfig(hidden_size=8, num_hidden_layers=1, vocab_size=9, state_size=2))
    with pytest.raises(UnsupportedModel, match=r"'mamba'.*register_adapter"):
        from_module(mamba)


def test_a_base_model_without_its_head_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="AutoModelForCausalLM"):
        from_module(LlamaModel(build("llama").config))


def test_adapters_of_peft_must_be_merged() -> None:
    class PeftModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.peft_config = {"default": "lora"}

    PeftModel.__module__ = "peft.peft_model"
    with pytest.raises(UnsupportedModel, match="merge_and_unload"):
        from_module(PeftModel())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(value: float) -> None:
    module = build("llama")
    with torch.no_grad():
        module.model.layers[1].mlp.down_proj.weight[0, 1] = value
    with pytest.raises(LoadError, match=r"'model.layers.1.mlp.down_proj.weight' has 1 NaN or infinite"):
        from_module(module)


def test_large_finite_weights_are_accepted() -> None:
    module = build("llama", dtype=torch.float16)
    with torch.no_grad():
        module.model.norm.weight.fill_(60000)  # their sum overflows
    from_module(module)


def test_weights_on_the_meta_device_are_refused() -> None:
    with torch.device("meta"):
        from transformers import LlamaForCausalLM

        module = LlamaForCausalLM(build("llama").config)
    with pytest.raises(LoadError, match="meta device"):
        from_module(module)


def test_weights_that_accelerate_offloads_are_refused(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    whole, disk, cpu, later = (build("llama") for _ in range(4))
    accelerate.dispatch_model(whole, device_map={"": "cpu"}, force_hooks=True)
    assert whole._hf_hook is not None
    assert all(check.passed for check in preflight(from_module(whole)))  # hooks that move nothing do no harm

    accelerate.disk_offload(disk, tmp_path, execution_device="cpu")
    accelerate.cpu_offload(cpu, execution_device="cpu")
    accelerate.hooks.add_hook_to_module(later.model.layers[1], accelerate.hooks.ModelHook())
    hook = accelerate.hooks.CpuOffload(execution_device="cpu")
    accelerate.hooks.add_hook_to_module(later.model.layers[1], hook, append=True)
    for module, part in (
        (disk, "model.embed_tokens"),
        (cpu, "model.embed_tokens"),
        (later, "model.layers.1"),
    ):
        with pytest.raises(
            LoadError, match=f"'{part}' are offloaded .*only while that part runs.*Load the model whole"
        ):
            from_module(module)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_configuration_that_contradicts_the_weights_is_refused(architecture: str) -> None:
    module = build(architecture)
    module.config.num_attention_heads = 3
    with pytest.raises(LoadError, match=r"layer L0's .* which contradicts"):
        from_module(module)


def test_a_wrong_head_size_in_the_configuration_is_refused() -> None:
    module = build("llama")
    module.config.head_dim = 8
    with pytest.raises(
        LoadError, match=r"'self_attn.o_proj' has size 16, which contradicts config.head_dim 8"
    ):
        from_module(module)


def test_a_wrong_number_of_kv_heads_is_refused() -> None:
    module = build("llama")
    module.config.num_key_value_heads = 4
    with pytest.raises(LoadError, match="'self_attn.k_proj' has size 8"):
        from_module(module)


def test_a_tokenizer_with_more_words_than_embeddings_is_refused() -> None:
    with pytest.raises(LoadError, match="40 tokens, the model only 30 embeddings"):
        from_module(build("llama", vocab_size=30), tokenizer())


def test_integer_weights_mean_quantised() -> None:
    module = build("llama")
    assert not from_module(module).quantised
    down = module.model.layers[0].mlp.down_proj
    down.weight = nn.Parameter(torch.zeros(16, 24, dtype=torch.int8), requires_grad=False)
    model = from_module(module)
    assert model.quantised
    assert model.dtype == torch.float32
