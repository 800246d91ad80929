"""Loading from disk and from the hub: what is accepted, what is refused and how it says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import RevisionNotFoundError
from transformers import AutoConfig
from transformers.utils import logging as transformers_logging

from circuittest.errors import LoadError, UnsupportedModel, UsageError
from circuittest.models import load_model
from circuittest.models.preflight import preflight
from tests.helpers.tiny import build, configure, save, tokenizer, tokens

pytestmark = pytest.mark.usefixtures("offline")


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


@pytest.mark.parametrize(
    "ref", ["/nowhere/model", "./nowhere", "./no@where", "a/b/c@d", "nowhere.gguf", "~/nowhere", "a/b/c"]
)
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


def test_a_revision_is_the_directory_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "models--me--tiny"
    (home / "refs").mkdir(parents=True)
    for seed, (name, commit) in enumerate({"step100": "1" * 40, "v1.0": "2" * 40}.items()):
        save(build("llama", seed=seed), home / "snapshots" / commit)
        (home / "refs" / name).write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    unreachable(monkeypatch)
    early, late = load_model("me/tiny@step100"), load_model("me/tiny@v1.0")
    assert (early.name, late.name) == ("me/tiny@step100", "me/tiny@v1.0")
    assert early.fingerprint != late.fingerprint
    assert late.fingerprint == load_model(home / "snapshots" / ("2" * 40)).fingerprint
    assert load_model(f"me/tiny@{'1' * 40}").fingerprint == early.fingerprint
    with pytest.raises(LoadError, match="cannot find revision 'step7' of 'me/tiny'.*cannot be reached"):
        load_model("me/tiny@step7")


def test_what_the_hub_says_of_a_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(error: type[Exception]) -> None:
        def raising(*_: Any, **how: Any) -> None:
            assert how["local_files_only"] is False
            assert "*.bin" not in how["allow_patterns"]
            raise error("404 Client Error.\nRevision Not Found")

        monkeypatch.setattr("huggingface_hub.snapshot_download", raising)

    monkeypatch.setattr("circuittest.models.hub.answers", lambda source: True)
    missing = type("Missing", (RevisionNotFoundError,), {"__init__": Exception.__init__})
    download(missing)
    with pytest.raises(LoadError, match=r"me/tiny has no revision 'step7'.*branch, a tag or a commit"):
        load_model("me/tiny@step7")
    download(PermissionError)
    with pytest.raises(LoadError, match=r"cannot get me/tiny@step7: 404 Client Error"):
        load_model("me/tiny@step7")


def test_an_unknown_zoo_model() -> None:
    with pytest.raises(Exception, match="nope"):
        load_model("zoo:nope")


def test_a_directory_without_config(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="has no config.json"):
        load_model(tmp_path)


def test_a_bare_weights_file(directory: Path) -> None:
    with pytest.raises(LoadError, match="neither a directory nor a GGUF file"):
        load_model(directory / "model.safetensors")


def test_cut_short_weights(tmp_path: Path) -> None:
    save(build("llama"), tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(LoadError, match=r"is cut short or damaged \(SafetensorError: .* Copy or download"):
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
    configure(tmp_path, intermediate_size=20)
    with pytest.raises(LoadError, match="(?i)shape|size"):
        load_model(tmp_path)


def test_a_directory_without_tokenizer(tmp_path: Path) -> None:
    save(build("gpt2"), tmp_path, with_tokenizer=False)
    with pytest.raises(LoadError, match=r"no tokenizer.*pass tokenizer="):
        load_model(tmp_path)


def test_architectures_are_refused_before_weights_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(UnsupportedModel, match="no adapter for model type 'mamba'"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonesuch"}))
    with pytest.raises(UnsupportedModel, match="transformers does not know"):
        load_model(tmp_path)
