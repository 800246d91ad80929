"""EAP-IG: gradients averaged over a path of inputs, summed before they meet the changes of the writes.

Edge attribution with integrated gradients over inputs (Hanna et al., arXiv 2403.17806): the gradients are averaged
over `steps` points between the replaced and the clean embeddings, the changes of the writes stay those of the whole
path. The points are those of the published code (hannamw/EAP-IG 795f560, src/eap/attribute.py, get_scores_eap_ig):
replaced + (k / steps) · (clean − replaced) for k = 0 … steps − 1, with the replaced end and without the clean one.

Summing the gradients first leaves one contraction instead of one per point, which norms between the residual and the
readers seem to forbid: each point has statistics of its own. With x̂ the normalised input of a point, r its root mean
square, w the weight of the norm, W a reader's projection, g the gradient at its output, and P as in `norms`:

    Σ Jᵀ Wᵀ g = P diag(w) Wᵀ Σ g/r − Σ x̂ ⟨W diag(w) x̂, g⟩ / (r d)

The first term needs only the sum of g/r in the reader's own few dimensions, and W diag(w) x̂ is what the projection
gave, less its biases (computed anew in half precision); so the second is of rank `steps` per row.

Where a write passes a norm after the sublayer (Gemma 2 and 3, OLMo 2), where q and k are normalised over all heads, and
for norms of other forms no such sum exists: each point is contracted by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from circuittest.measure.edges import EdgeScores
from circuittest.measure.norms import Jacobian
from circuittest.measure.trace import Place, Trace
from circuittest.models.loaded import LoadedModel

#: Points that are summed before they are contracted; more need memory for their statistics.
POINTS = 8


def path_scores(scorer: EdgeScores, points: Iterable[Trace], steps: int) -> Iterator[Tensor]:
    """Edge scores [examples, writers, readers] of one batch over the points of a path, a few examples at a time."""
    if scorer.summable and steps <= POINTS:
        summing = Summing(scorer, steps)
        for point in points:
            summing.add(point)
            del point  # before the next forward
        yield from scorer(summing.total())
        return
    total: list[Tensor] = []
    for trace in _summed(scorer, points) if scorer.summable else points:
        for number, part in enumerate(scorer(trace)):
            if number < len(total):
                total[number].add_(part)
            else:
                total.append(part)
        del trace
    yield from total


@torch.no_grad()
def summed_gradients(points: Iterable[Trace]) -> Trace:
    """One trace whose gradients are the sum of those of a path, in the units' own dimensions: for node scores."""
    total: dict[Place, Tensor] = {}
    last: Trace | None = None
    for point in points:
        last = last or Trace(point.changes, {}, {}, experts=point.experts)
        for place, gradient in point.gradients.items():
            _add(total, place, gradient.to(torch.promote_types(gradient.dtype, torch.float32)))
        del point, gradient  # before the next forward
    if last is None:
        raise TypeError("a path has at least one point")
    return Trace(last.changes, {}, total, experts=last.experts)


def _summed(scorer: EdgeScores, points: Iterable[Trace]) -> Iterator[Trace]:
    summing = Summing(scorer, POINTS)
    for point in points:
        summing.add(point)
        del point
        if summing.count == POINTS:
            yield summing.total()
            summing = Summing(scorer, POINTS)
    if summing.count:
        yield summing.total()


class Summing:
    """The sum over at most `points` points of everything that one contraction needs; see the formula above."""

    def __init__(self, scorer: EdgeScores, points: int) -> None:
        self.scorer = scorer
        self.count, self._most = 0, points
        self._changes: dict[Place, Tensor] = {}
        self._gradients: dict[Place, Tensor] = {}
        self._ranks: dict[int, tuple[Tensor, Tensor]] = {}

    @torch.no_grad()
    def add(self, point: Trace) -> None:
        """Add one point of the path."""
        self._changes = point.changes
        final = point.gradients["final", 0]
        self._add(("final", 0), final)
        for layer in range(self.scorer.layout.n_layers):
            norm = self._jacobian(point, "attn_norm", layer)
            self._add_slots(point, layer, norm)
            after = norm if self.scorer.shared_norm[layer] else self._jacobian(point, "mlp_norm", layer)
            mlp = point.gradients["mlp_in", layer].to(self.scorer.dtype)
            if after.kind != "identity":
                mlp = after.pull(mlp.clone().flatten(0, 1)[None]).view_as(mlp)
            self._add(("mlp_in", layer), mlp)
        self.count += 1

    def total(self) -> Trace:
        """The sum as a trace: gradients at q, k and v over r; those of the MLPs and logits in the residual."""
        n = self.count
        ranks = {layer: (along[..., :n], unit[..., :n, :]) for layer, (along, unit) in self._ranks.items()}
        return Trace(self._changes, {}, self._gradients, ranks=ranks, summed=True)

    def _add_slots(self, point: Trace, layer: int, norm: Jacobian) -> None:
        if norm.kind == "identity":
            for role in self.scorer.roles(layer):
                self._add((role, layer), point.gradients[role, layer])
            return
        unit, inverse = norm.unit, norm.inverse
        if unit is None or inverse is None:
            raise TypeError("an analytic Jacobian has statistics")
        shape = point.gradients["final", 0].shape
        inverse = inverse.view(*shape[:2], 1)
        along = []
        for role in self.scorer.roles(layer):
            gradient = point.gradients[role, layer].to(self.scorer.dtype) * inverse
            self._add((role, layer), gradient)
            if self.scorer.dtype == self.scorer.model.dtype:
                linear = point.slots[role, layer] - self.scorer.constant(role, layer)
            else:  # in half precision a large bias leaves nothing of the rest
                linear = self.scorer.projected(role, layer, unit.view(shape))
            product = linear.mul_(gradient)
            along += [part.sum(-1) for part in self.scorer.apart(role, product)]
        products = torch.cat(along, -1).div_(shape[-1])
        if layer not in self._ranks:
            batch, length, width = shape
            new = lambda *sizes: unit.new_empty(batch, length, *sizes)
            self._ranks[layer] = new(products.shape[-1], self._most), new(self._most, width)
        kept_along, kept_unit = self._ranks[layer]
        kept_along[..., self.count] = products
        kept_unit[..., self.count, :] = unit.view(shape)

    def _jacobian(self, point: Trace, role: str, layer: int) -> Jacobian:
        norm = self.scorer.norms[role][layer]
        return norm.at(point.norms[role, layer].flatten(0, 1)) if norm.module else Jacobian("identity")

    def _add(self, place: Place, gradient: Tensor) -> None:
        _add(self._gradients, place, gradient.to(self.scorer.dtype))


def _add(total: dict[Place, Tensor], place: Place, value: Tensor) -> None:
    total[place] = total[place].add_(value) if place in total else value.clone()


def kept_numbers(model: LoadedModel, scorer: EdgeScores | None, steps: int) -> int:
    """How many numbers per token stay in memory while a path is run, beside those of its passes; 0 without a path."""
    if not steps:
        return 0
    layout, width, inner = model.layout, model.width, model.layout.n_heads * model.head_dim
    numbers = 3 * (inner + width)  # replaced writes, their changes, summed gradients
    if scorer is not None and scorer.summable:
        slots = layout.n_heads + 2 * layout.n_kv_heads
        numbers += slots * model.head_dim - inner + min(steps, POINTS) * (slots + width)
    return 2 * layout.n_layers * numbers  # of what a sum is made is there at the same time
