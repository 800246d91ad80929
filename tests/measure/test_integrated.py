"""EAP-IG in float64: the mean over points of finite differences, on every kind of block; completeness; linearity."""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import Tensor

from circuittest.errors import UsageError
from circuittest.measure import integrated
from circuittest.measure.attribution import attribute
from circuittest.measure.batches import Batch, plan
from circuittest.measure.edges import EdgeScores
from circuittest.measure.integrated import path_scores, summed_gradients
from circuittest.measure.metrics import Targets, last_rows, metric_values
from circuittest.measure.nodes import writer_scores
from circuittest.measure.trace import points
from circuittest.models.loaded import LoadedModel
from circuittest.units import Edge, Layout, Unit
from tests.helpers import tiny
from tests.helpers.differences import Differences
from tests.helpers.items import random_items

STEPS = 3


@lru_cache
def model_of(architecture: str) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=torch.float64)


def batch_of(model: LoadedModel, count: int = 2, length: int = 6) -> Batch:
    return plan(random_items(count, (length,)), model)[0]


def edge_scores(model: LoadedModel, batch: Batch, metric: str, steps: int = STEPS) -> Tensor:
    """[examples, writers, readers] in float64."""
    with model.measuring():
        path = points(model, batch, metric, steps=steps, reads=True)
        return torch.cat(list(path_scores(EdgeScores(model), path, steps)))


def node_scores(model: LoadedModel, batch: Batch, metric: str, steps: int = STEPS) -> Tensor:
    with model.measuring():
        path = points(model, batch, metric, steps=steps, reads=False)
        return writer_scores(summed_gradients(path), model.layout, torch.float64)


def sample(layout: Layout) -> list[Edge]:
    """An edge of every combination of writer, reader, slot and distance (own block or not)."""
    kinds: dict[tuple[str, str, str | None, bool], list[Edge]] = {}
    for edge in layout.edges():
        near = edge.source.layer == edge.target.layer
        kinds.setdefault((edge.source.kind, edge.target.kind, edge.slot, near), []).append(edge)
    return [random.Random(0).choice(found) for found in kinds.values()]


@pytest.mark.parametrize(
    ("architecture", "metric"),
    [
        *(pytest.param(*one.values, "log_prob", marks=one.marks) for one in tiny.marked(tiny.EVERY)),
        ("gpt2", "kl"),
        pytest.param("gemma2", "kl", marks=pytest.mark.slow),
    ],
)
def test_scores_are_means_of_finite_differences_along_the_path(architecture: str, metric: str) -> None:
    model = model_of(architecture)
    batch = batch_of(model)
    edges, nodes = edge_scores(model, batch, metric), node_scores(model, batch, metric)
    scale = float(nodes.abs().max())
    torch.testing.assert_close(edges.sum(-1), nodes, rtol=1e-9, atol=1e-10 * scale)
    # The published points: the counterfactual's embeddings are among them, the clean ones are not.
    path = [Differences(model, batch, metric, share=k / STEPS) for k in range(STEPS)]
    writers, readers = model.layout.writers, model.layout.readers
    near = {"rtol": 1e-5, "atol": 1e-6 * scale}
    for edge in sample(model.layout):
        found = edges[:, writers.index(edge.source), readers.index((edge.target, edge.slot))]
        expected = sum(point.edge(edge) for point in path) / STEPS
        torch.testing.assert_close(found, expected, **near, msg=lambda m, e=edge: f"{e}: {m}")
    for unit in (Unit("embed"), Unit("head", 0, 1), Unit("mlp", 1)):
        expected = sum(point.node(unit) for point in path) / STEPS
        torch.testing.assert_close(nodes[:, writers.index(unit)], expected, **near)


@pytest.mark.parametrize(
    ("architecture", "metric"), [("gpt2", "kl"), pytest.param("llama", "logit_diff", marks=pytest.mark.slow)]
)
def test_the_embeddings_scores_add_up_to_the_change_of_the_metric(architecture: str, metric: str) -> None:
    model = model_of(architecture)
    batch = batch_of(model)
    targets = Targets.of(batch.items, model.device)
    with torch.no_grad():
        clean, other = (
            last_rows(model.trunk(ids, use_cache=False).last_hidden_state)
            for ids in (batch.prompts(model.device), batch.counterfactuals(model.device))
        )
        value = lambda rows: metric_values(model, rows, targets, metric, clean=clean)
        change = value(other) - value(clean)
    errors = [
        float((node_scores(model, batch, metric, steps)[:, 0] - change).abs().max()) for steps in (25, 200)
    ]
    assert errors[1] < 0.02 * float(change.abs().max())
    assert errors[1] < errors[0] / 4  # a sum of left ends: the error falls as 1/steps


@pytest.mark.parametrize("architecture", ["gpt2", "gemma3_text"])
@pytest.mark.parametrize("at_once", [1, 2])
def test_how_many_points_are_summed_at_once_changes_nothing(
    architecture: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(architecture)
    batch = batch_of(model)
    whole = edge_scores(model, batch, "log_prob")
    monkeypatch.setattr(integrated, "POINTS", at_once)
    torch.testing.assert_close(edge_scores(model, batch, "log_prob"), whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_biases_leave_the_sum_exact(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of Qwen2 have biases of a hundred: beside them little is left of the projection's other part."""
    module = tiny.build("qwen2", dtype=dtype)
    for block in module.get_submodule("model.layers"):
        block.self_attn.k_proj.bias.data.add_(100.0)
    model = tiny.wrap(module.requires_grad_(False))
    batch = batch_of(model, count=4)
    summed = edge_scores(model, batch, "log_prob")
    monkeypatch.setattr(EdgeScores, "summable", False)
    one_by_one = edge_scores(model, batch, "log_prob")
    assert summed.dtype == torch.float32
    torch.testing.assert_close(summed, one_by_one, rtol=1e-3, atol=1e-3 * float(one_by_one.abs().max()))


@pytest.mark.parametrize("architecture", ["gpt2", "gpt_neox", "gemma3_text"])
def test_examples_do_not_see_each_other(architecture: str) -> None:
    model, items = model_of(architecture), random_items(5)
    score = lambda some: attribute(model, some, metric="kl", method="eap-ig", steps=2).values
    alone = np.concatenate([score([item]) for item in items])
    np.testing.assert_allclose(score(items), alone, rtol=2e-6, atol=1e-9)


def test_unit_rules_follow_from_the_edges() -> None:
    model, items = model_of("llama"), random_items(3, (6,))
    by = lambda **rule: attribute(model, items, metric="log_prob", method="eap-ig", steps=4, **rule)
    np.testing.assert_allclose(
        by(unit_score="edge-sum").values, by(unit_score="node").values, rtol=1e-5, atol=1e-6
    )
    table = by(level="edges")
    absolute = by(unit_score="edge-abs-sum", kinds=("mlp",))
    for column, unit in enumerate(absolute.members):
        outgoing = [i for i, e in enumerate(table.members) if isinstance(e, Edge) and e.source == unit]
        expected = np.abs(table.values[:, outgoing]).sum(1)
        np.testing.assert_allclose(absolute.values[:, column], expected, rtol=1e-5)


def test_choices_say_how_many_points() -> None:
    table = attribute(model_of("gpt2"), random_items(2), metric="log_prob", method="eap-ig", steps=2)
    assert (table.choices["method"], table.choices["steps"]) == ("eap-ig", 2)


def test_what_has_no_defined_score_is_refused() -> None:
    model, items = model_of("gpt2"), random_items(2)
    with pytest.raises(UsageError, match="'kl' has no first-order estimate at the clean run"):
        attribute(model, items, metric="kl")
    for steps in (0, 2.5, True):
        with pytest.raises(UsageError, match="whole number of points"):
            attribute(model, items, metric="log_prob", method="eap-ig", steps=steps)  # type: ignore[arg-type]
