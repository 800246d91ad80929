"""A zoo model against copies of itself whose change is known: none, a hair, its circuit cut out, its training undone."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from circuittest import Lab
from circuittest.lock import lock_path
from circuittest.models.loaded import LoadedModel, weight_in_out
from circuittest.models.loading import from_module
from circuittest.spec import judge, load_spec
from circuittest.spec.lock import make_lock

SIZES: dict[str, Any] = {"discover": 16, "evaluate": 60}
SPEC = """\
circuittest: 1
model: zoo:gqa
task: {name: ioi, discover: 16, evaluate: 60}
circuit: {top: 20%, at: 80}
claims:
  - drift.behaviour: {margin: 0.15}
  - drift.function: {margin: 0.25}
  - drift.structure: {margin: 0.3}
  - regression: {is: kept, margin: 0.25}
"""


@pytest.fixture(scope="module")
def base() -> Lab:
    return Lab("zoo:gqa", "ioi", **SIZES)


@pytest.fixture(scope="module")
def spec(base: Lab, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("base") / "ioi.circuit.yaml"
    path.write_text(SPEC)
    make_lock(load_spec(path, locked=False), base).save(lock_path(path))
    return load_spec(path)


def same(model: LoadedModel, spec: Any) -> LoadedModel:
    return from_module(copy.deepcopy(model.module), model.tokenizer, "copy")


def renamed(model: LoadedModel, spec: Any) -> LoadedModel:
    """The same weights, which do not say so."""
    return replace(model, fingerprint="0" * 64)


def cut_out(model: LoadedModel, spec: Any) -> LoadedModel:
    """Without the heads of the locked circuit."""
    edited = from_module(copy.deepcopy(model.module), model.tokenizer, "cut")
    with torch.no_grad():
        for unit in spec.lock.circuits["circuit"].circuit.units:
            out = weight_in_out(edited.blocks[unit.layer].out)
            out.unflatten(0, (model.layout.n_heads, -1))[unit.index].zero_()
    return from_module(edited.module, model.tokenizer, "cut")


def trained(rate: float, steps: int) -> Any:
    """Fine-tuned to answer with anything at random."""

    def train(model: LoadedModel, spec: Any) -> LoadedModel:
        module = copy.deepcopy(model.module)
        torch.manual_seed(0)
        size = module.config.vocab_size
        parameters = [parameter.requires_grad_() for parameter in module.parameters()]
        optimiser = torch.optim.AdamW(parameters, lr=rate)
        for _ in range(steps):
            ids = torch.randint(size, (8, 16))
            module(ids, labels=torch.randint(size, (8, 16))).loss.backward()
            optimiser.step()
            optimiser.zero_grad()
        return from_module(module, model.tokenizer, "trained")

    return train


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "drifted", "label"),
    [
        (same, False, "kept"),
        (renamed, False, "kept"),
        (trained(1e-6, 2), False, "kept"),
        (cut_out, True, "broken"),
        (trained(1e-2, 8), True, "broken"),
    ],
    ids=["same", "renamed", "hair", "cut-out", "undone"],
)
def test_the_verdict_is_the_known_one(base: Lab, spec: Any, change: Any, drifted: bool, label: str) -> None:
    lab = Lab(change(base.model, spec), "ioi", **SIZES)
    verdicts = {claim.id: judge(spec, claim, lab) for claim in spec.claims}
    assert verdicts["regression"].estimate.label == label
    for name, verdict in verdicts.items():
        assert verdict.outcome == ("refuted" if drifted else "supported"), name
    if change in (same, renamed):
        assert [verdict.estimate.value for verdict in verdicts.values()] == [0.0] * 4
