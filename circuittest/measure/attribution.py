"""Attribution: per-example scores of every unit or edge from a few forwards and backwards per batch.

Edge attribution patching (EAP; Nanda 2023; Syed et al., arXiv 2310.10348): the first-order estimate of what the
metric changes by when an activation takes its baseline value. Δ = baseline − clean; gradients at the clean run, or
averaged over a path of inputs (EAP-IG; see `integrated`). All examples of a batch are scored at once: the sum of
their metrics is differentiated, and examples do not see each other.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from circuittest.errors import UsageError, did_you_mean
from circuittest.measure.baselines import baseline_writes, check_baseline
from circuittest.measure.batches import Batch, ItemLike, describe, plan, precision
from circuittest.measure.edges import EdgeScores, edges
from circuittest.measure.exact import activation_patching
from circuittest.measure.integrated import kept_numbers, path_scores, summed_gradients
from circuittest.measure.memory import within_memory
from circuittest.measure.metrics import check_metric
from circuittest.measure.nodes import node_scores, units_of
from circuittest.measure.rows import Rows, StreamedRows
from circuittest.measure.trace import FINE, Trace, Writes, points, trace
from circuittest.models.loaded import LoadedModel
from circuittest.progress import advance, following
from circuittest.tables import Member, ScoreTable
from circuittest.units import Layout

#: Larger tables are not held in memory.
TABLE_BYTES = 1 << 30
METHODS = ("eap", "eap-ig", "exact")
UNIT_SCORES = ("edge-abs-sum", "edge-sum", "node")
_KINDS = ("embed", "head", "kv", "attn", "expert", "mlp", "neuron")
_LOG = logging.getLogger("circuittest")


def attribute(
    model: LoadedModel,
    items: Sequence[ItemLike],
    *,
    metric: str,
    method: str = "eap",
    steps: int = 5,
    baseline: str = "counterfactual",
    calibration: Sequence[ItemLike] = (),
    level: str = "units",
    unit_score: str = "edge-abs-sum",
    kinds: Sequence[str] = ("head", "mlp"),
    batch_size: int | None = None,
    out: str | Path | None = None,
) -> ScoreTable:
    """Score every unit (or edge) on every example.

    Parameters
    ----------
    items:
        Prompts and counterfactuals of equal length, with answer and foil ids.
    metric:
        "log_prob" (nats), "logit_diff" (logits), "prob_diff" or "kl" (nats, of the clean run's distribution from the
        changed one), at the last prompt position. "kl" needs the method "eap-ig": its gradient at the clean run is 0.
    method:
        "eap"; "eap-ig": gradients averaged over `steps` points between the baseline's and the clean embeddings; or
        "exact": each unit or edge replaced in turn (`circuittest.measure.exact`), where `unit_score` means nothing.
    baseline:
        What a unit's write is compared with: "counterfactual", its value on the item's counterfactual prompt; "zero";
        "mean", over all positions of the `calibration` prompts. The path of "eap-ig" starts at the baseline of the
        embeddings.
    calibration:
        Held-out examples, for the baseline "mean".
    level:
        "units", or "edges" for every edge of the layout.
    unit_score:
        How a unit's score is made: "edge-abs-sum", Σ over outgoing edges of |edge score| (Li & Subramani, arXiv
        2605.08348), "edge-sum", the same signed, or "node", ⟨Δ write, ∂metric/∂ write⟩, equal to "edge-sum" and
        cheaper, since no edge is built. A KV group or attention layer is its heads together: their edges are
        summed before the absolute value.
    kinds:
        Which kinds of unit to score; ignored for edges. Experts and neurons have the unit score "node" alone.
    batch_size:
        Most examples in a batch; by default it follows from shapes. Where memory runs out batches are halved, with a
        warning, and the table's choices tell.
    out:
        A file to write the table to row by row, as `ScoreTable.save` would; its values then stay on disk. Tables of
        more than `TABLE_BYTES` go to a temporary file, with a warning, where none is named.

    Returns
    -------
    ScoreTable
        float32 [examples × members], rows in the order of `items`.

    Raises
    ------
    UsageError
        For unknown choices, no examples, prompts whose counterfactual has another length, missing answers or foils,
        and combinations that have no defined score.
    UnsupportedModel
        For quantised models.
    InterventionError
        Where an activation or gradient could not be captured.
    """
    _check(metric, method, steps, level, unit_score, kinds)
    check_metric(metric, items)
    check_baseline(baseline, method, items, calibration)
    if method == "exact":
        table = activation_patching(
            model,
            items,
            metric=metric,
            level=level,
            kinds=kinds,
            value=baseline,
            calibration=calibration,
            batch_size=batch_size,
        )
        if out is not None:
            table.save(out)
        return table
    layout = model.layout
    path = steps if method == "eap-ig" else 0
    scorer = EdgeScores(model) if level == "edges" or unit_score != "node" else None
    batches = plan(items, model, batch_size=batch_size, kept=kept_numbers(model, scorer, path))
    members: tuple[Member, ...] = edges(layout)[0] if level == "edges" else layout.units(kinds)
    if not members:
        raise UsageError(f"the model has no units of kind {', '.join(kinds)}", layout.describe())
    choices: dict[str, Any] = {
        "method": method,
        "metric": metric,
        "baseline": baseline,
        "level": level,
        "score": unit_score if level == "units" else "edge",
        "dtype": str(model.dtype).removeprefix("torch."),
    }
    if method == "eap-ig":
        choices["steps"] = steps
    if baseline == "mean":
        choices["calibration"] = [item.index for item in calibration]
    rows = _rows(out, members, items, choices, batches)
    try:
        with model.measuring(), following("attribution", len(items)):
            fine = [kind for kind in FINE if kind in kinds and level == "units"]
            others = baseline_writes(model, baseline, calibration, fine=fine, batch_size=batch_size)
            scoring = _Scoring(model, scorer, metric, path, others, level, unit_score, kinds)

            def work(batch: Batch) -> None:
                start = 0
                for part in scoring(batch):
                    rows.put(batch.rows[start : start + len(part)], part.to("cpu", torch.float32).numpy())
                    start += len(part)
                    advance(len(part))

            done = within_memory(batches, work)
        choices["batches"] = describe(done)
        if len(done) != len(batches):
            choices["halved"] = describe(batches)
        return rows.finish(choices)
    except BaseException:
        rows.drop()
        raise


def _rows(
    out: str | Path | None,
    members: Sequence[Member],
    items: Sequence[ItemLike],
    choices: Mapping[str, Any],
    batches: Sequence[Batch],
) -> Rows:
    examples = [item.index for item in items]
    if out is None and 4 * len(examples) * len(members) <= TABLE_BYTES:
        return Rows(members, examples)
    if out is None:
        handle, out = tempfile.mkstemp(prefix="circuittest-", suffix=".safetensors")
        os.close(handle)
        size = 4e-9 * len(examples) * len(members)
        _LOG.warning("scores of %.1f GB go to %s, which nobody removes; name a file by `out`", size, out)
    planned = describe(batches)
    single = [one for batch in batches for one in [[1, batch.length]] * len(batch.rows)]
    return StreamedRows(out, members, examples, {**choices, "batches": single, "halved": planned})


def _check(metric: str, method: str, steps: int, level: str, unit_score: str, kinds: Sequence[str]) -> None:
    for name, value, known in (
        ("method", method, METHODS),
        ("level", level, ("units", "edges")),
        ("unit score", unit_score, UNIT_SCORES),
    ):
        if value not in known:
            raise UsageError(f"unknown {name} {value!r}", "", did_you_mean(str(value), known))
    for kind in kinds:
        if kind not in _KINDS:
            raise UsageError(f"units of kind {kind!r} cannot be scored", "", did_you_mean(str(kind), _KINDS))
    fine = [kind for kind in FINE if kind in kinds]
    if fine and level == "units" and unit_score != "node" and method != "exact":
        raise UsageError(
            f"units of kind {fine[0]!r} by the unit score {unit_score!r}",
            "edges start at heads and whole MLPs; from every neuron or expert there would be far too many",
            "use the unit score 'node'",
        )
    if not kinds:
        raise UsageError("no kinds of unit were given", "", f"known are {', '.join(_KINDS)}")
    if method == "eap-ig" and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise UsageError(f"{steps!r} steps", "the path of EAP-IG has a whole number of points", "use 5")
    if metric == "kl" and method == "eap":
        raise UsageError(
            "the metric 'kl' has no first-order estimate at the clean run",
            "the divergence from the clean run is least there, so its gradient and all scores are 0",
            "use the method 'eap-ig', or the metric 'log_prob'",
        )


class _Scoring:
    """How the batches of one call are scored."""

    def __init__(
        self,
        model: LoadedModel,
        scorer: EdgeScores | None,
        metric: str,
        steps: int,
        others: Writes | None,
        level: str,
        unit_score: str,
        kinds: Sequence[str],
    ) -> None:
        self.model, self.scorer = model, scorer
        self.metric, self.steps, self.others = metric, steps, others
        self.level, self.unit_score, self.kinds = level, unit_score, kinds
        self.fine = [kind for kind in FINE if kind in kinds]

    def __call__(self, batch: Batch) -> Iterator[Tensor]:
        """Scores [examples, members] of a few examples at a time, in the batch's order."""
        layout = self.model.layout
        if self.scorer is None:
            traced = self._node_trace(batch)
            yield node_scores(traced, self.model, self.kinds, precision(self.model.dtype))
            return
        for part in self._edges(batch, self.scorer):
            yield _of_edges(part, layout, self.level, self.unit_score, self.kinds)

    def _edges(self, batch: Batch, scorer: EdgeScores) -> Iterator[Tensor]:
        if not self.steps:
            return scorer(trace(self.model, batch, self.metric, reads=True, others=self.others))
        return path_scores(scorer, self._points(batch, reads=True), self.steps)

    def _node_trace(self, batch: Batch) -> Trace:
        if not self.steps:
            return trace(self.model, batch, self.metric, reads=False, others=self.others, fine=self.fine)
        return summed_gradients(self._points(batch, reads=False))

    def _points(self, batch: Batch, *, reads: bool) -> Iterator[Trace]:
        fine = () if reads else self.fine
        return points(
            self.model, batch, self.metric, steps=self.steps, reads=reads, others=self.others, fine=fine
        )


def _of_edges(scores: Tensor, layout: Layout, level: str, unit_score: str, kinds: Sequence[str]) -> Tensor:
    if level == "edges":
        return scores.flatten(1)[:, torch.from_numpy(edges(layout)[1]).to(scores.device)]
    grouped = units_of(scores, layout, kinds)
    return grouped.abs().sum(-1) if unit_score == "edge-abs-sum" else grouped.sum(-1)
