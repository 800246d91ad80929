"""Loading: what is accepted, what is refused and how it says so, and that nothing of the user's is changed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, normalizers
from torch import nn
from transformers import (
    AutoConfig,
    BartConfig,
    BertConfig,
    BertModel,
    CLIPConfig,
    LlamaModel,
    MambaConfig,
    MambaForCausalLM,
    ModernBertConfig,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
)
from transformers.utils import logging as transformers_logging

from circuittest.errors import LoadError, UnsupportedModel, UsageError
from circuittest.models import from_module, load_model, own_tokenizer
from circuittest.models.hooks import count
from circuittest.models.preflight import preflight
from tests.helpers.tiny import ARCHITECTURES, build, save, tokenizer, tokens


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(build("llama"), tmp_path_factory.mktemp("llama"))


# Modules in memory ------------------------------------------------------------------------------------------------


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


# From disk --------------------------------------------------------------------------------------------------------


def test_a_directory_is_loaded_frozen_in_evaluation_mode_and_quietly(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    verbosity = transformers_logging.get_verbosity()
    model = load_model(str(directory))
    assert capfd.readouterr() == ("", "")
    assert transformers_logging.get_verbosity() == verbosity
    assert transformers_logging.is_progress_bar_enabled()
    assert not model.module.training
    assert not any(parameter.requires_grad for parameter in model.module.parameters())
    assert model.dtype == torch.float32
    assert model.device == torch.device("cuda", 0) or model.device == torch.device("cpu")
    assert model.name == str(directory)
    assert model.tokenizer("w5 w7")["input_ids"] == [5, 7]
    assert all(check.passed for check in preflight(model))
    with torch.no_grad():
        ids = tokens(2, 7)
        torch.testing.assert_close(model.module(ids).logits, build("llama")(ids).logits)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_dtypes(directory: Path, dtype: str) -> None:
    model = load_model(directory, dtype=dtype, device="cpu")
    assert model.dtype == getattr(torch, dtype)


def test_a_tokenizer_can_be_given_as_object_or_directory(directory: Path, tmp_path: Path) -> None:
    save(build("gpt2"), tmp_path, with_tokenizer=False)
    words = tokenizer()
    assert load_model(tmp_path, tokenizer=words).tokenizer is words
    assert load_model(tmp_path, tokenizer=directory).tokenizer("w9")["input_ids"] == [9]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dtype": "float23"}, "Did you mean 'float32'"),
        ({"dtype": torch.int8}, "'int8'"),
        ({"device": "gpu"}, "cuda:1"),
    ],
)
def test_unknown_dtypes_and_devices(directory: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_model(directory, **wrong)


def test_a_device_that_is_not_there(directory: Path) -> None:
    with pytest.raises(LoadError, match="no device 'cuda:63'"):
        load_model(directory, device="cuda:63")


@pytest.mark.parametrize("ref", ["/nowhere/model", "./nowhere", "nowhere.gguf", "~/nowhere", "a/b/c"])
def test_a_missing_path_is_not_mistaken_for_a_hub_id(ref: str) -> None:
    with pytest.raises(LoadError, match="there is no file or directory"):
        load_model(ref)


def test_a_hub_id_that_cannot_be_reached() -> None:
    with pytest.raises(
        LoadError, match=r"cannot find 'nobody/nothing'.*hub cannot be reached.*Check the spelling"
    ):
        load_model("nobody/nothing")


def unreachable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No network, though nobody said so; the addresses that were asked for."""
    asked: list[str] = []

    def ask(url: str, **_: Any) -> Any:
        asked.append(url)
        raise OSError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", ask)
    return asked


def test_without_a_network_the_hub_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = unreachable(monkeypatch)
    monkeypatch.setattr(
        AutoConfig, "from_pretrained", lambda *_, **__: pytest.fail("this would try again and again")
    )
    with pytest.raises(LoadError, match="cannot find 'nobody/nothing'.*hub cannot be reached"):
        load_model("nobody/nothing")
    assert len(asked) == 1


def test_without_a_network_a_model_comes_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, commit = tmp_path / "models--me--tiny", "0" * 40
    save(build("llama"), home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    asked = unreachable(monkeypatch)
    model = load_model("me/tiny")
    assert model.tokenizer("w5 w7")["input_ids"] == [5, 7]
    assert len(asked) == 2  # for the model, and for its tokenizer
    assert all(url.endswith("/me/tiny/resolve/main/config.json") for url in asked)


def test_an_unknown_zoo_model() -> None:
    with pytest.raises(Exception, match="nope"):
        load_model("zoo:nope")


def test_a_directory_without_config(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="has no config.json"):
        load_model(tmp_path)


def test_a_bare_weights_file(directory: Path) -> None:
    with pytest.raises(LoadError, match="neither a directory nor a GGUF file"):
        load_model(directory / "model.safetensors")


def test_pickled_weights_are_never_read(directory: Path, tmp_path: Path) -> None:
    save(build("llama"), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(build("llama").state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(LoadError, match="safetensors"):
        load_model(tmp_path)


def test_cut_short_weights(tmp_path: Path) -> None:
    save(build("llama"), tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(LoadError, match="(?i)safetensor"):
        load_model(tmp_path)


def test_weights_missing_from_the_checkpoint_are_not_drawn_at_random(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save(build("llama"), tmp_path)
    file = tmp_path / "model.safetensors"
    kept = {
        name: weight
        for name, weight in load_file(file).items()
        if name != "model.layers.1.mlp.up_proj.weight"
    }
    save_file(kept, file, metadata={"format": "pt"})
    with pytest.raises(LoadError, match=r"lacks 1 weights, first 'model.layers.1.mlp.up_proj.weight'"):
        load_model(tmp_path)


def test_weights_of_another_shape(tmp_path: Path) -> None:
    save(build("llama"), tmp_path)
    edit(tmp_path / "config.json", intermediate_size=20)
    with pytest.raises(LoadError, match="(?i)shape|size"):
        load_model(tmp_path)


def test_a_directory_without_tokenizer(tmp_path: Path) -> None:
    save(build("gpt2"), tmp_path, with_tokenizer=False)
    with pytest.raises(LoadError, match=r"no tokenizer.*pass tokenizer="):
        load_model(tmp_path)


def test_a_tokenizer_that_is_not_the_one_beside_the_model_is_told(
    directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(
        build("qwen2"), tmp_path
    )  # transformers builds a Qwen2Tokenizer from these words, which splits otherwise
    load_model(directory)
    load_model(tmp_path, tokenizer=PreTrainedTokenizerFast.from_pretrained(tmp_path))
    assert not caplog.records
    model = load_model(tmp_path)
    if model.tokenizer("w5 w7")["input_ids"] == [5, 7]:
        assert not caplog.records
        pytest.skip("this transformers keeps the tokenizer that lies beside the model")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    said = record.getMessage()
    assert "transformers loads Qwen2Tokenizer" in said
    assert "'When Mary and John went to the' becomes" in said
    assert f"pass tokenizer=PreTrainedTokenizerFast.from_pretrained('{tmp_path}')" in said


def test_how_tokenizers_differ(tmp_path: Path) -> None:
    own = tokenizer()
    own.save_pretrained(tmp_path)
    assert own_tokenizer.difference(tokenizer(), str(tmp_path)) == ""
    state = json.loads((tmp_path / "tokenizer.json").read_text())
    words = state["model"]["vocab"]
    for change, said in (
        ({"w7": 8, "w8": 7}, "0 of its 40 words are missing and 2 have other ids"),
        ({"w39": None}, "1 of its 40 words are missing and 0 have other ids"),
    ):
        new = {word: at for word, at in {**words, **change}.items() if at is not None}
        loaded = Tokenizer.from_str(json.dumps({**state, "model": {**state["model"], "vocab": new}}))
        assert (
            own_tokenizer.difference(PreTrainedTokenizerFast(tokenizer_object=loaded), str(tmp_path)) == said
        )
    loaded = tokenizer()
    loaded.backend_tokenizer.normalizer = normalizers.Replace("w", "v")
    assert own_tokenizer.difference(loaded, str(tmp_path)).endswith(
        "becomes [0, 0, 0, 0, 0, 0]…, not [32, 33, 34, 35, 36, 37]…"
    )
    loaded.backend_tokenizer.normalizer = normalizers.Replace("☃", "x")  # another pipeline, the same ids
    assert own_tokenizer.difference(loaded, str(tmp_path)) == ""


def test_code_that_comes_with_a_model_is_never_run(tmp_path: Path) -> None:
    save(build("llama"), tmp_path)
    edit(tmp_path / "config.json", auto_map={"AutoConfig": "mine.Mine"}, model_type="mine")
    (tmp_path / "mine.py").write_text("raise SystemExit('ran')")
    with pytest.raises(LoadError, match="runs such code only where it is asked to"):
        load_model(tmp_path)


def test_architectures_are_refused_before_weights_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(UnsupportedModel, match="no adapter for model type 'mamba'"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonesuch"}))
    with pytest.raises(UnsupportedModel, match="transformers does not know"):
        load_model(tmp_path)


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


OWN_CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class Mine(LlamaConfig):
    pass

class MineLM(LlamaForCausalLM):
    config_class = Mine
"""


def test_code_that_comes_with_a_model_runs_where_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "model"
    save(build("llama"), folder)
    plain = load_model(folder)
    edit(folder / "config.json", auto_map={"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.MineLM"})
    (folder / "mine.py").write_text(OWN_CODE)
    found = load_model(folder, trust=("remote-code",))
    assert type(found.module).__name__ == "MineLM"
    assert type(load_model(folder).module).__name__ == "LlamaForCausalLM"  # its own code is left alone
    assert found.layout == plain.layout


def test_pickles_are_read_where_they_are_trusted(tmp_path: Path) -> None:
    module = build("llama")
    save(module, tmp_path)
    plain = load_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(module.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(LoadError, match="--circuit-trust=pickle"):
        load_model(tmp_path)
    assert load_model(tmp_path, trust=["pickle"]).fingerprint == plain.fingerprint
    with pytest.raises(UsageError, match="cannot be trusted as 'pickles'. Did you mean 'pickle'"):
        load_model(tmp_path, trust=["pickles"])
