"""Code and pickles that come with a model: never run nor read, but where they are trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from circuittest.errors import LoadError, UsageError
from circuittest.models import load_model
from tests.helpers.tiny import build, configure, save

pytestmark = pytest.mark.usefixtures("offline")


def test_pickled_weights_are_never_read(tmp_path: Path) -> None:
    save(build("llama"), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(build("llama").state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(LoadError, match="safetensors"):
        load_model(tmp_path)


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


def test_code_that_comes_with_a_model_is_never_run(tmp_path: Path) -> None:
    save(build("llama"), tmp_path)
    configure(tmp_path, auto_map={"AutoConfig": "mine.Mine"}, model_type="mine")
    (tmp_path / "mine.py").write_text("raise SystemExit('ran')")
    with pytest.raises(LoadError, match="runs such code only where it is asked to"):
        load_model(tmp_path)


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
    configure(folder, auto_map={"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.MineLM"})
    (folder / "mine.py").write_text(OWN_CODE)
    found = load_model(folder, trust=("remote-code",))
    assert type(found.module).__name__ == "MineLM"
    assert type(load_model(folder).module).__name__ == "LlamaForCausalLM"  # its own code is left alone
    assert found.layout == plain.layout
