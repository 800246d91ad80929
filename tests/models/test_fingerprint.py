"""Equal weights have equal fingerprints in every process and form; one changed weight has another."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from circuittest.models.fingerprint import fingerprint, weights
from circuittest.models.loading import load_model
from tests.helpers.tiny import EVERY, build, marked, save, tokenizer

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("architecture", marked(EVERY))
def test_saving_and_loading_keeps_it(architecture: str, tmp_path: Path) -> None:
    module = build(architecture)
    save(module, tmp_path, with_tokenizer=False)
    module.config.use_cache = False  # what a trainer does, and what changes no logit
    assert load_model(str(tmp_path), tokenizer=tokenizer()).fingerprint == fingerprint(module)


def test_it_is_the_same_in_another_process() -> None:
    code = (
        "from tests.helpers.tiny import build\n"
        "from circuittest.models.fingerprint import fingerprint\n"
        "print(fingerprint(build('llama')))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == fingerprint(build("llama"))


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.mlp.up_proj.weight", "lm_head.weight"])
def test_one_changed_weight_changes_it(name: str) -> None:
    module = build("llama")
    before = fingerprint(module)
    weight = module.get_parameter(name).detach().view(-1)
    old = weight[-1].clone()
    weight[-1] = torch.nextafter(old, torch.tensor(9.0))
    assert fingerprint(module) != before
    weight[-1] = old
    assert fingerprint(module) == before


def test_swapped_tensors_of_one_shape_change_it() -> None:
    module = build("llama")
    other = copy.deepcopy(module)
    a, b = other.model.layers[0].mlp, other.model.layers[1].mlp
    a.up_proj.weight, b.up_proj.weight = b.up_proj.weight, a.up_proj.weight
    assert fingerprint(module) != fingerprint(other)


def test_configuration_and_dtype_count() -> None:
    module = build("llama")
    assert fingerprint(build("llama", dtype=torch.bfloat16)) != fingerprint(module)
    other = copy.deepcopy(module)
    other.config.rms_norm_eps *= 10
    assert fingerprint(other) != fingerprint(module)


def test_tied_weights_count_once() -> None:
    names = [name for name, _ in weights(build("gemma3_text"))]
    assert sum("embed" in name or "lm_head" in name for name in names) == 1
    names = [name for name, _ in weights(build("llama"))]
    assert sum("embed" in name or "lm_head" in name for name in names) == 2
