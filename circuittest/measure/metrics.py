"""What is read at the last prompt position: the metrics that attribution differentiates, the outcomes of ablation.

Answers of several tokens are teacher-forced: each token is read at its own position, after the prompt and the tokens
before it. Their log-probability is the sum over tokens. Greedy decoding gives exactly such an answer when, and only
when, at every one of these positions the most likely token is the answer's, so that nothing has to be generated.

The trunk's last row is copied out before it is unembedded: Hugging Face's own ``logits_to_keep`` hands the
unembedding a strided view, which costs a copy of the unembedding per example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circuittest.errors import UsageError, did_you_mean
from circuittest.measure.batches import ItemLike, forced, precision
from circuittest.models.loaded import LoadedModel, weight_in_out
from circuittest.tables import CONTRASTS

METRICS = ("log_prob", "logit_diff", "prob_diff", "kl")
#: Those that are measured after an intervention too.
OUTCOME_METRICS = ("log_prob", "logit_diff", "prob_diff")
#: Bytes of the logits that are held at once.
LOGIT_BYTES = 64 << 20


@dataclass(frozen=True)
class Targets:
    """What is right for a batch.

    Attributes
    ----------
    answers, answer_mask, foils, foil_mask:
        Answer and foil ids, padded: [items, most ids of any item] and masks of the same shape.
    forced:
        Ids of answers that are read token by token [items, tokens]; None where one position is read.
    ends:
        Which ids may follow such an answer [items, ids]; None where that is not asked.
    """

    answers: Tensor
    answer_mask: Tensor
    foils: Tensor
    foil_mask: Tensor
    forced: Tensor | None = None
    ends: Tensor | None = None

    @classmethod
    def of(cls, items: Sequence[ItemLike], device: torch.device) -> Targets:
        """Read the ids of the items, which all are read at equally many positions.

        Raises UsageError where an item has no answer, an answer among its foils, or several answers to be forced.
        """
        for item in items:
            if not item.answer_ids:
                raise UsageError(f"example {item.index} has no answer", "nothing could be scored")
            if set(item.answer_ids) & set(item.foil_ids):
                raise UsageError(
                    f"example {item.index} has a token that is both answer and foil",
                    "no model could be right",
                )
            if forced(item) and len(item.answer_ids) > 1:
                raise UsageError(
                    f"example {item.index} has {len(item.answer_ids)} answers, one of several tokens",
                    "one answer is read token by token",
                    "give one answer, or score first tokens",
                )
        answers, answer_mask = _padded([item.answer_ids for item in items], device)
        foils, foil_mask = _padded([item.foil_ids for item in items], device)
        whole = [(*item.answer_ids, *getattr(item, "answer_rest", ())) for item in items]
        if not any(forced(item) for item in items):
            return cls(answers, answer_mask, foils, foil_mask)
        return cls(
            answers, answer_mask, foils, foil_mask, torch.tensor(whole, device=device), _ends(items, device)
        )

    @property
    def have_foils(self) -> bool:
        """True where every item has at least one foil."""
        return bool(self.foil_mask.any(1).all()) if self.foil_mask.shape[1] else False

    def rows(self, part: slice) -> Targets:
        """The targets of some rows."""
        return self._each(lambda tensor: tensor[part])

    def repeat(self, times: int) -> Targets:
        """The targets of the same items, repeated as a whole."""
        return self._each(lambda tensor: tensor.repeat(times, 1))

    def to(self, device: torch.device) -> Targets:
        """The same targets on a device."""
        return self if self.answers.device == device else self._each(lambda tensor: tensor.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Targets:
        maybe = lambda tensor: None if tensor is None else change(tensor)
        return Targets(
            change(self.answers),
            change(self.answer_mask),
            change(self.foils),
            change(self.foil_mask),
            maybe(self.forced),
            maybe(self.ends),
        )


def check_metric(metric: str, items: Sequence[ItemLike]) -> None:
    """Raise UsageError for an unknown metric, and for one that compares tokens where an item has no two to compare."""
    if metric not in METRICS:
        raise UsageError(f"unknown metric {metric!r}", "", did_you_mean(metric, METRICS))
    for item in items if metric in ("logit_diff", "prob_diff") else ():
        if forced(item):
            raise UsageError(
                f"the metric {metric!r} for the answer of several tokens of example {item.index}",
                "it compares single tokens",
                "use the metric 'log_prob'",
            )
        if metric == "logit_diff" and not item.foil_ids:
            raise UsageError(
                f"example {item.index} has no foil",
                "a logit difference compares answers with foils",
                "use the metric 'log_prob'",
            )


def undefined(items: Sequence[ItemLike]) -> tuple[str, ...]:
    """The outcomes that some of the items do not have."""
    if any(forced(item) for item in items):
        return (*CONTRASTS, "prob_diff")
    return () if all(item.foil_ids for item in items) else CONTRASTS


def last_rows(hidden: Tensor, tail: int = 1) -> Tensor:
    """The last position of [batch, length, width], or with a tail above 1 so many [batch, tail, width]; contiguous."""
    return (hidden[:, -1] if tail == 1 else hidden[:, -tail:]).contiguous()


def softcap(model: LoadedModel) -> float | None:
    """The cap c of ``c · tanh(logits / c)``, where the configuration has one (Gemma 2)."""
    cap = getattr(model.module.config, "final_logit_softcapping", None)
    return None if cap is None else float(cap)


def logits(model: LoadedModel, rows: Tensor) -> Tensor:
    """Logits [batch, vocabulary] of the trunk's rows [batch, width]."""
    values = model.unembed(rows)
    cap = softcap(model)
    return (values if cap is None else cap * torch.tanh(values / cap)).to(precision(model.dtype))


def candidate_logits(model: LoadedModel, rows: Tensor, ids: Tensor) -> Tensor:
    """Logits [batch, ids] of some tokens per row: rows of the unembedding, never the whole vocabulary."""
    dtype = precision(model.dtype)
    weight = weight_in_out(model.unembed).T[ids].to(dtype)  # [batch, ids, width]
    values = (weight @ rows.to(dtype).unsqueeze(2)).squeeze(2)
    bias = getattr(model.unembed, "bias", None)
    if bias is not None:
        values = values + bias[ids]
    cap = softcap(model)
    return values if cap is None else cap * torch.tanh(values / cap)


def metric_values(
    model: LoadedModel, rows: Tensor, targets: Targets, metric: str, *, clean: Tensor | None = None
) -> Tensor:
    """The metric of each example [batch], differentiable in the trunk's rows [batch, width] ([batch, tail, width] of
    forced answers).

    "log_prob": log of the summed probability of the answers, in nats. "logit_diff": mean logit of the answers
    minus mean logit of the foils. "prob_diff": summed probability of the answers minus that of the foils. "kl": of the
    distribution of `clean`, the rows of the untouched run, from that of the rows, over the vocabulary, in nats. Of
    forced answers log-probabilities and divergences are summed over the answer's tokens.
    """
    rows, targets = _where_unembedded(model, rows, targets)
    clean = None if clean is None else clean.to(rows.device)
    if targets.forced is not None:
        return _forced_values(model, rows, targets.forced, metric, clean)
    if metric == "kl":
        if clean is None:
            raise TypeError("a divergence from the clean run needs its rows")
        expected = logits(model, clean.detach()).log_softmax(1)
        return (expected.exp() * (expected - logits(model, rows).log_softmax(1))).sum(1)
    if metric == "logit_diff":
        answers = _mean(candidate_logits(model, rows, targets.answers), targets.answer_mask)
        return answers - _mean(candidate_logits(model, rows, targets.foils), targets.foil_mask)
    values = logits(model, rows)
    total = values.logsumexp(1, keepdim=True)
    answer_logs = values.gather(1, targets.answers) - total
    if metric == "log_prob":
        return _log_sum(answer_logs, targets.answer_mask)
    return _prob_diff(answer_logs, values.gather(1, targets.foils) - total, targets)


def _forced_values(
    model: LoadedModel, rows: Tensor, tokens: Tensor, metric: str, clean: Tensor | None
) -> Tensor:
    count = tokens.shape[1]
    values = logits(model, rows[:, :count].flatten(0, 1)).log_softmax(1)
    if metric == "log_prob":
        return values.gather(1, tokens.reshape(-1, 1)).view(-1, count).sum(1)
    if metric != "kl" or clean is None:
        raise TypeError(f"{metric!r} is no metric of answers of several tokens, or lacks the clean rows")
    expected = logits(model, clean[:, :count].detach().flatten(0, 1)).log_softmax(1)
    return (expected.exp() * (expected - values)).sum(1).view(-1, count).sum(1)


def outcomes(model: LoadedModel, rows: Tensor, targets: Targets) -> dict[str, Tensor]:
    """Every outcome of each example, float64 [batch]; see `OutcomeTable`. Contrasts only where all items have foils.

    "argmax" is right when the most likely token of the whole vocabulary is an answer. "candidates" is right when
    the best answer is strictly above the best foil. Of forced answers there are "argmax", right when greedy decoding
    gives the whole answer and then one of the ids that may follow, and "log_prob", summed over its tokens.
    """
    rows, targets = _where_unembedded(model, rows, targets)
    vocabulary = weight_in_out(model.unembed).shape[1]
    tail = rows.shape[1] if targets.forced is not None else 1
    step = max(1, LOGIT_BYTES // (tail * vocabulary * precision(model.dtype).itemsize))
    one = _outcomes if targets.forced is None else _forced_outcomes
    parts = [
        one(model, rows[start : start + step], targets.rows(slice(start, start + step)))
        for start in range(0, len(rows), step)
    ]
    names = sorted(set.intersection(*(set(part) for part in parts)))
    return {name: torch.cat([part[name] for part in parts]).double() for name in names}


def _where_unembedded(model: LoadedModel, rows: Tensor, targets: Targets) -> tuple[Tensor, Targets]:
    """Rows and targets on the device of the unembedding, of a model that is spread over several."""
    device = next(model.unembed.parameters()).device
    return rows.to(device), targets.to(device)


def _outcomes(model: LoadedModel, rows: Tensor, targets: Targets) -> dict[str, Tensor]:
    values = logits(model, rows)
    best = values.argmax(-1, keepdim=True)
    answers, foils = values.gather(1, targets.answers), values.gather(1, targets.foils)
    total = values.logsumexp(1, keepdim=True)
    found = {
        "argmax": ((best == targets.answers) & targets.answer_mask).any(1),
        "log_prob": _log_sum(answers - total, targets.answer_mask),
        "prob_diff": _prob_diff(answers - total, foils - total, targets),
    }
    if targets.have_foils:
        top_answer = answers.masked_fill(~targets.answer_mask, -torch.inf).amax(1)
        found["candidates"] = top_answer > foils.masked_fill(~targets.foil_mask, -torch.inf).amax(1)
        found["logit_diff"] = _mean(answers, targets.answer_mask) - _mean(foils, targets.foil_mask)
    return found


def _forced_outcomes(model: LoadedModel, rows: Tensor, targets: Targets) -> dict[str, Tensor]:
    tokens, ends = targets.forced, targets.ends
    if tokens is None:
        raise TypeError("no answer is forced")
    batch, count = tokens.shape
    values = logits(model, rows.flatten(0, 1)).view(batch, rows.shape[1], -1)
    best = values.argmax(-1)
    right = (best[:, :count] == tokens).all(1)
    if ends is not None:
        after = best[:, count].clamp(max=ends.shape[1] - 1)
        right &= ends.gather(1, after[:, None])[:, 0] & (after == best[:, count])
    logs = values[:, :count].log_softmax(-1).gather(2, tokens[:, :, None]).squeeze(2).sum(1)
    return {"argmax": right, "log_prob": logs}


def _ends(items: Sequence[ItemLike], device: torch.device) -> Tensor | None:
    """bool [items, ids]: which ids may follow each answer."""
    given = [frozenset(getattr(item, "ends", ())) for item in items]
    if not any(given):
        return None
    kinds = {one: torch.zeros(max(map(max, filter(None, given))) + 1, dtype=torch.bool) for one in set(given)}
    for one, mask in kinds.items():
        mask[list(one)] = True
    return torch.stack([kinds[one] for one in given]).to(device)


def _padded(ids: Sequence[tuple[int, ...]], device: torch.device) -> tuple[Tensor, Tensor]:
    distinct = [tuple(dict.fromkeys(one)) for one in ids]
    most = max(map(len, distinct))
    table = torch.tensor(
        [one + (0,) * (most - len(one)) for one in distinct], dtype=torch.long, device=device
    )
    mask = torch.tensor(
        [[i < len(one) for i in range(most)] for one in distinct], dtype=torch.bool, device=device
    )
    return table.view(len(distinct), most), mask.view(len(distinct), most)


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum(1) / mask.sum(1)


def _log_sum(logs: Tensor, mask: Tensor) -> Tensor:
    return logs.masked_fill(~mask, -torch.inf).logsumexp(1)


def _prob_diff(answer_logs: Tensor, foil_logs: Tensor, targets: Targets) -> Tensor:
    answers = (answer_logs.exp() * targets.answer_mask).sum(1)
    return answers - (foil_logs.exp() * targets.foil_mask).sum(1)
