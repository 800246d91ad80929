"""Edge and node scores against finite differences in float64, on every adapter."""

from __future__ import annotations

import random
from functools import lru_cache

import pytest
import torch
from torch import Tensor, nn

from circuittest.measure import edges as edges_module
from circuittest.measure.batches import Batch, plan
from circuittest.measure.edges import EdgeScores, edges, visible
from circuittest.measure.nodes import writer_scores
from circuittest.measure.trace import trace
from circuittest.models.loaded import LoadedModel
from circuittest.units import Edge, Layout, Unit
from tests.helpers import tiny
from tests.helpers.differences import Differences
from tests.helpers.items import random_items

VARIANTS = {
    **{name: (name, {}) for name in tiny.EVERY},
    "llama-mqa": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "llama-wide-heads": ("llama", {"head_dim": 10}),
    "gemma3_text-capped": ("gemma3_text", {"final_logit_softcapping": 3.0}),
}


@lru_cache
def model_of(variant: str) -> LoadedModel:
    architecture, config = VARIANTS[variant]
    return tiny.build_loaded(architecture, dtype=torch.float64, **config)


def batch_of(model: LoadedModel, count: int = 3, length: int = 6) -> Batch:
    return plan(random_items(count, (length,)), model)[0]


def edge_scores(model: LoadedModel, batch: Batch, metric: str) -> Tensor:
    """[examples, writers, readers] in float64."""
    with model.measuring():
        return torch.cat(list(EdgeScores(model)(trace(model, batch, metric, reads=True))))


def node_scores(model: LoadedModel, batch: Batch, metric: str) -> Tensor:
    with model.measuring():
        return writer_scores(trace(model, batch, metric, reads=False), model.layout, torch.float64)


def sample(layout: Layout, each: int) -> list[Edge]:
    """Some edges of every combination of writer, reader, slot and distance (own block or not)."""
    kinds: dict[tuple[str, str, str | None, bool], list[Edge]] = {}
    for edge in layout.edges():
        near = edge.source.layer == edge.target.layer
        kinds.setdefault((edge.source.kind, edge.target.kind, edge.slot, near), []).append(edge)
    rng = random.Random(0)
    return [edge for found in kinds.values() for edge in rng.sample(found, min(each, len(found)))]


@pytest.mark.parametrize("metric", ["log_prob", "logit_diff"])
@pytest.mark.parametrize("variant", tiny.marked(VARIANTS))
def test_edges_are_finite_differences(variant: str, metric: str) -> None:
    model = model_of(variant)
    batch = batch_of(model)
    scores = edge_scores(model, batch, metric)
    differences = Differences(model, batch, metric)
    writers, readers = model.layout.writers, model.layout.readers
    scale = float(scores.abs().max())
    for edge in sample(model.layout, 2):
        found = scores[:, writers.index(edge.source), readers.index((edge.target, edge.slot))]
        torch.testing.assert_close(
            found, differences.edge(edge), rtol=1e-5, atol=1e-6 * scale, msg=lambda m, e=edge: f"{e}: {m}"
        )


@pytest.mark.parametrize("metric", ["log_prob", "logit_diff", "prob_diff"])
@pytest.mark.parametrize("variant", tiny.marked(VARIANTS))
def test_nodes_are_finite_differences_and_sums_of_edges(variant: str, metric: str) -> None:
    model = model_of(variant)
    batch = batch_of(model)
    nodes = node_scores(model, batch, metric)
    scale = float(nodes.abs().max())
    torch.testing.assert_close(
        edge_scores(model, batch, metric).sum(-1), nodes, rtol=1e-10, atol=1e-11 * scale
    )
    differences = Differences(model, batch, metric)
    writers = model.layout.writers
    chosen = [Unit("embed"), *random.Random(1).sample(writers[1:], 6)]
    for unit in chosen:
        found = nodes[:, writers.index(unit)]
        torch.testing.assert_close(
            found, differences.node(unit), rtol=1e-5, atol=1e-6 * scale, msg=lambda m, u=unit: f"{u}: {m}"
        )


@pytest.mark.parametrize("variant", ["gpt2", "llama", "gemma3_text", "gpt_neox"])
@pytest.mark.parametrize("rows", [1, 4, 13])
def test_windows_of_examples_and_positions_change_nothing(
    variant: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(variant)
    batch = batch_of(model)
    whole = edge_scores(model, batch, "log_prob")
    row_bytes = len(model.layout.writers) * model.width * 8
    monkeypatch.setattr(edges_module, "WRITE_BYTES", rows * row_bytes)
    torch.testing.assert_close(edge_scores(model, batch, "log_prob"), whole, rtol=1e-11, atol=1e-13)


def test_norms_of_another_form_are_differentiated() -> None:
    class Doubled(nn.Module):
        """A norm that no formula here describes."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + 0.1 * torch.tanh(x)

    module = tiny.build("gemma3_text", dtype=torch.float64)
    for block in module.get_submodule("model.layers"):
        for name in ("input_layernorm", "post_attention_layernorm", "post_feedforward_layernorm"):
            setattr(block, name, Doubled(getattr(block, name)))
    model = tiny.wrap(module.requires_grad_(False))
    batch = batch_of(model)
    scores = edge_scores(model, batch, "log_prob")
    torch.testing.assert_close(scores.sum(-1), node_scores(model, batch, "log_prob"), rtol=1e-10, atol=1e-12)
    differences = Differences(model, batch, "log_prob")
    writers, readers = model.layout.writers, model.layout.readers
    for edge in sample(model.layout, 1):
        found = scores[:, writers.index(edge.source), readers.index((edge.target, edge.slot))]
        torch.testing.assert_close(found, differences.edge(edge), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "layout",
    [Layout(2, 4, 2), Layout(3, 2, 2, parallel=True), Layout(1, 3, 1), Layout(1, 1, 1, parallel=True)],
)
def test_edges_and_visibility_are_those_of_the_layout(layout: Layout) -> None:
    members, places = edges(layout)
    assert members == tuple(layout.edges())
    readers = layout.readers
    for edge, place in zip(members, places, strict=True):
        row, column = divmod(int(place), len(readers))
        assert (layout.writers[row], readers[column]) == (edge.source, (edge.target, edge.slot))
    expected = [[layout.sees(target, source) for target, _ in readers] for source in layout.writers]
    assert visible(layout).tolist() == expected
