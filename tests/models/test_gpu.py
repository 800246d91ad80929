"""What only a GPU shows: the numbers of the CPU on it, in float32 and bfloat16, and models spread over two."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from circuittest.measure.ablation import ablate
from circuittest.measure.attribution import attribute
from circuittest.measure.patching import patch
from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module, load_model
from circuittest.models.preflight import preflight, require
from circuittest.units import Edge, Unit
from tests.helpers import tiny
from tests.helpers.items import random_items

GPUS = torch.cuda.device_count()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not GPUS, reason="torch sees no GPU here")]
ITEMS = random_items(6)
SETS = [tuple(map(Unit.parse, text.split())) for text in ("", "L0.H1", "L0.H0 L1.MLP L2.H2", "L1.KV0")]
EDGES = [[Edge.parse("L0.H1->L2.KV0.v"), Edge.parse("L1.MLP->logits")]]
EVERYWHERE = tuple(name for name in tiny.EVERY if name != "falcon_alibi")


def numbers(model: LoadedModel) -> dict[str, np.ndarray]:
    """Ablation, scores of units and edges, and patched edges."""
    column = lambda table: table.columns["log_prob"]
    return {
        "ablation": column(ablate(model, ITEMS, SETS)),
        "units": attribute(model, ITEMS, metric="log_prob").values,
        "edges": attribute(model, ITEMS, metric="log_prob", level="edges", method="eap-ig", steps=2).values,
        "patched": column(patch(model, ITEMS, EDGES, keep=False)),
    }


def compare(model: LoadedModel, name: str, tolerance: float) -> None:
    require(preflight(model))
    for label, expected in numbers(tiny.build_loaded(name)).items():
        np.testing.assert_allclose(numbers(model)[label], expected, rtol=0, atol=tolerance, err_msg=label)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_gpu_gives_the_numbers_of_the_cpu(name: str) -> None:
    compare(tiny.wrap(tiny.build(name).to("cuda")), name, 1e-3)


def test_bfloat16_on_a_gpu_is_within_its_noise(tmp_path: Path) -> None:
    tiny.save(tiny.build("llama"), tmp_path)
    compare(load_model(tmp_path, device="cuda", dtype="bfloat16"), "llama", 0.2)


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_model_spread_over_gpus_gives_the_numbers_of_the_cpu(name: str, tmp_path: Path) -> None:
    tiny.save(tiny.build(name), tmp_path)
    module = AutoModelForCausalLM.from_pretrained(tmp_path, device_map="balanced", dtype=torch.float32)
    assert len({parameter.device for parameter in module.parameters()}) > 1
    compare(from_module(module), name, 1e-3)
