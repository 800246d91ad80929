"""GGUF files: converted once, exactly, by however many processes; damaged ones are refused with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from circuittest.errors import LoadError
from circuittest.models import gguf, load_model
from circuittest.models.preflight import preflight
from tests.helpers.tiny import build, tokens

pytest.importorskip("gguf", reason="needs circuittest[gguf]")
pytest.importorskip("accelerate", reason="needs circuittest[gguf]")

ROOT = Path(__file__).parents[2]
WORDS = ["<unk>", "<bos>", "<eos>", *"0123456789", "Ġ", "Ċ", *"abcdefghijklmnopqrstuvw", "12", "ab"]


@pytest.fixture(scope="module")
def module() -> nn.Module:
    return build("llama", tie_word_embeddings=True)


@pytest.fixture(scope="module")
def file(module: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write(module, path)
    return path


@pytest.fixture(scope="module")
def filled(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the file has been converted."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CIRCUITTEST_CACHE", str(cache))
        load_model(file)
    return cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CIRCUITTEST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "converted"


def write(module: nn.Module, path: Path) -> None:
    """What llama.cpp's converter writes for a Llama: renamed, q and k permuted for its rotary layout."""
    from gguf import GGUFWriter

    config, state = module.config, module.state_dict()
    writer = GGUFWriter(str(path), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(4)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_name("tiny")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3] + [1] * (len(WORDS) - 3))
    writer.add_token_merges(["1 2", "a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    parts = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"].numpy())
    writer.add_tensor("output_norm.weight", state["model.norm.weight"].numpy())
    for layer in range(config.num_hidden_layers):
        for theirs, ours in parts.items():
            weight = state[f"model.layers.{layer}.{theirs}.weight"]
            if ours in ("attn_q", "attn_k"):
                heads = config.num_attention_heads if ours == "attn_q" else config.num_key_value_heads
                weight = permuted(weight, heads)
            writer.add_tensor(f"blk.{layer}.{ours}.weight", weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def permuted(weight: Tensor, heads: int) -> Tensor:
    return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def test_the_converted_model_computes_what_the_original_does(
    file: Path, filled: Path, module: nn.Module
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CIRCUITTEST_CACHE", str(filled))
        model = load_model(file)
    ids = tokens(2, 9)
    with torch.no_grad():
        torch.testing.assert_close(model.module(ids).logits, module(ids).logits, rtol=0, atol=1e-6)
    for name, weight in module.state_dict().items():
        assert torch.equal(model.module.state_dict()[name], weight), name
    assert not model.quantised
    assert not hasattr(model.module.config, "quantization_config")
    assert model.name == str(file)
    assert all(check.passed for check in preflight(model))


def test_digits_are_tokens_of_their_own_again(file: Path, filled: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CIRCUITTEST_CACHE", str(filled))
        words = load_model(file).tokenizer
    assert words.convert_ids_to_tokens(words("ab  12")["input_ids"]) == ["ab", "Ġ", "Ġ", "1", "2"]


def test_the_second_time_it_comes_from_the_cache(
    file: Path, filled: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CIRCUITTEST_CACHE", str(filled))
    monkeypatch.setattr(gguf, "_convert", lambda *_: pytest.fail("converted again"))
    monkeypatch.setattr(gguf, "find_spec", lambda _: None)  # nor are the packages needed any more
    load_model(file)
    assert capfd.readouterr() == ("", "")


def test_conversion_is_quiet(file: Path, cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gguf.converted(file)
    assert capfd.readouterr() == ("", "")
    assert [path.name.startswith(".") for path in sorted(cache.iterdir())] == [True, False]  # lock and result


@pytest.mark.slow
def test_several_processes_at_once_and_a_killed_one_before(file: Path, cache: Path) -> None:
    digest = gguf.converted(file).name.partition("-")[0]
    (cache / f"{digest}-1").rename(cache / f".{digest}-killed.part")
    code = f"import pathlib, circuittest.models.gguf as g; print(g.converted(pathlib.Path({str(file)!r})))"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    printed = [process.communicate()[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert set(printed) == {str(cache / f"{digest}-1")}
    assert not list(cache.glob("*.part"))


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_a_file_that_is_cut_short(file: Path, cache: Path, tmp_path: Path, kept: float) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(file.read_bytes()[: int(kept * file.stat().st_size)])
    with pytest.raises(LoadError, match=r"short.gguf: the file is cut short.*checksum"):
        load_model(short)
    assert not [path for path in cache.iterdir() if path.is_dir()]


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 something else"])
def test_a_file_that_is_not_gguf(tmp_path: Path, cache: Path, content: bytes) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(content)
    with pytest.raises(LoadError, match=r"other.gguf is not a GGUF file.*download"):
        load_model(other)


def test_missing_packages_are_named(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "find_spec", lambda name: None if name == "gguf" else name)
    with pytest.raises(LoadError, match=r"gguf not installed.*pip install circuittest\[gguf\]"):
        gguf.converted(file)


def test_a_cache_that_cannot_be_written(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("CIRCUITTEST_CACHE", str(tmp_path / "taken"))
    with pytest.raises(LoadError, match="set CIRCUITTEST_CACHE"):
        gguf.converted(file)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CIRCUITTEST_CACHE", str(tmp_path))
    assert gguf.cache_dir() == tmp_path
    monkeypatch.delenv("CIRCUITTEST_CACHE")
    assert gguf.cache_dir().name == "circuittest"
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert gguf.cache_dir() == tmp_path / "circuittest"
