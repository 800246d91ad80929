"""Measure a tiny model whole on the CPU and spread over two pretended devices: `python -m tests.helpers.several_devices NAME`.

Prints what differs and exits with 1, or names what was compared and exits with 0.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from accelerate import dispatch_model

from circuittest.measure.ablation import ablate
from circuittest.measure.attention import attention_rows
from circuittest.measure.attribution import attribute
from circuittest.measure.exact import activation_patching
from circuittest.measure.patching import patch
from circuittest.models.loaded import LoadedModel
from circuittest.models.preflight import preflight
from circuittest.units import Edge, Unit
from tests.helpers import pretend, tiny
from tests.helpers.items import random_items

Measure = Callable[[LoadedModel], Any]


def spread(name: str, layers_on_first: int = 1) -> LoadedModel:
    """The model with its first layers on one device and the others, with the unembedding, on the other."""
    module = tiny.build(name, dtype=torch.float64).requires_grad_(False)
    whole = tiny.wrap(module)
    blocks = {id(block.block): i for i, block in enumerate(whole.blocks)}
    tied = module.get_output_embeddings().weight is module.get_input_embeddings().weight
    places: dict[str, str] = {}
    inside: tuple[str, ...] = ()
    for path, part in module.named_modules():
        if path.startswith(inside or ("\0",)) or not path:
            continue
        if id(part) in blocks:
            places[path] = f"{pretend.NAME}:{int(blocks[id(part)] >= layers_on_first)}"
        elif not any(id(child) in blocks for child in part.modules()):
            unembedding = part is module.get_output_embeddings() and not tied
            late = unembedding or "norm" in path or "ln_f" in path
            places[path] = f"{pretend.NAME}:{int(late)}"
        else:
            continue
        inside += (path + ".",)
    return tiny.wrap(dispatch_model(module, places, force_hooks=True))


def measures(name: str) -> dict[str, Measure]:
    """Everything that is compared."""
    items, others = random_items(4), random_items(6, seed=7)
    texts = ("", "L0.H1", "L0.H0 L1.MLP L2.H2", "L2.H3", "L1.ATTN L0.MLP", "L1.KV0")
    sets = [tuple(map(Unit.parse, text.split())) for text in texts]
    by = lambda **how: lambda model: attribute(model, items, **{"metric": "logit_diff", **how}).values
    columns = lambda table: np.stack([table.columns[key] for key in sorted(table.columns)])
    without = lambda **how: lambda model: columns(ablate(model, items, sets, **how))
    edges = [[Edge.parse("L0.H1->L2.KV0.v"), Edge.parse("L1.MLP->logits")], [Edge.parse("embed->L1.MLP")]]
    found: dict[str, Measure] = {
        "node scores": by(unit_score="node"),
        "edge scores": by(level="edges"),
        "unit scores": by(),
        "log-prob": by(metric="log_prob"),
        "EAP-IG": by(level="edges", method="eap-ig", steps=2),
        "KL": by(method="eap-ig", metric="kl", steps=2),
        "baseline mean": by(baseline="mean", calibration=others),
        "zero": without(),
        "mean": without(value="mean", calibration=others),
        "counterfactual": without(value="counterfactual"),
        "resample at the answer": without(value="resample", calibration=others, positions="answer"),
        "kept edges": lambda model: columns(patch(model, items, edges, keep=True)),
        "removed edges, mean": lambda model: columns(
            patch(model, items, edges, keep=False, value="mean", calibration=others)
        ),
        "exact patching": lambda model: activation_patching(model, items, metric="log_prob").values,
        "attention": lambda model: attention_rows(model, items).rows,
        "preflight": lambda model: np.array([check.passed for check in preflight(model)], dtype=float),
    }
    if name.startswith("falcon"):  # its implementation cannot be changed
        del found["attention"]
    if name in ("olmoe", "mixtral", "qwen3_moe"):
        fine = [tuple(map(Unit.parse, text.split())) for text in ("L0.E1", "L0.E0 L2.H1", "L2.E2")]
        found["experts"] = lambda model: columns(ablate(model, items, fine))
        found["expert scores"] = by(kinds=("head", "expert"), unit_score="node")
    return found


def main(name: str) -> int:
    whole = tiny.build_loaded(name, dtype=torch.float64)
    several = spread(name)
    devices = {str(parameter.device) for parameter in several.module.parameters()}
    if len(devices) != pretend.COUNT or several.fingerprint != whole.fingerprint:
        print(f"on {devices}, fingerprints {several.fingerprint} and {whole.fingerprint}")
        return 1
    wrong = []
    # Without threads of its own, as the engine has none for devices that are not there.
    with torch.autograd.set_multithreading_enabled(False):
        for label, measure in measures(name).items():
            try:
                found = np.asarray(measure(several))
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)
                ours = [frame for frame in place if "circuittest" in frame.filename][-1]
                wrong.append(f"{label}: {type(error).__name__}: {error} ({ours.filename}:{ours.lineno})")
                continue
            if not np.allclose(found, np.asarray(measure(whole)), rtol=0, atol=1e-5, equal_nan=True):
                wrong.append(f"{label}: other numbers")
    print("\n".join(wrong) or f"{name}: {', '.join(measures(name))}")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
