"""Metrics and outcomes against the whole logits of the plain Hugging Face model."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

from circuittest.errors import UsageError
from circuittest.measure import metrics
from circuittest.measure.metrics import (
    METRICS,
    Targets,
    candidate_logits,
    check_metric,
    last_rows,
    logits,
    metric_values,
    outcomes,
)
from circuittest.models.loaded import LoadedModel
from tests.helpers import tiny
from tests.helpers.items import FakeItem, random_items


def plain_logits(model: LoadedModel, items: list[FakeItem]) -> tuple[Tensor, Tensor]:
    """Last-position logits by the module itself, and the trunk's rows."""
    ids = torch.tensor([item.prompt_ids for item in items])
    with torch.no_grad():
        return model.module(ids).logits[:, -1], last_rows(model.trunk(ids).last_hidden_state)


@pytest.mark.parametrize("architecture", tiny.marked(tiny.EVERY))
def test_logits_of_the_last_position(architecture: str) -> None:
    model = tiny.build_loaded(architecture, dtype=torch.float64)
    expected, rows = plain_logits(model, random_items(4, (7,)))
    torch.testing.assert_close(logits(model, rows), expected, rtol=0, atol=1e-12)
    ids = torch.tensor([[3, 9], [4, 9], [5, 9], [6, 9]])
    torch.testing.assert_close(
        candidate_logits(model, rows, ids), expected.gather(1, ids), rtol=0, atol=1e-12
    )


def test_a_soft_cap_on_the_logits_is_applied() -> None:
    model = tiny.build_loaded("gemma3_text", dtype=torch.float64, final_logit_softcapping=2.0)
    expected, rows = plain_logits(model, random_items(3, (7,)))
    assert float(expected.abs().max()) < 2.0
    torch.testing.assert_close(logits(model, rows), expected, rtol=0, atol=1e-12)
    ids = torch.tensor([[3], [4], [5]])
    torch.testing.assert_close(
        candidate_logits(model, rows, ids), expected.gather(1, ids), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("logit_bytes", [1, metrics.LOGIT_BYTES])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_metrics_by_hand(architecture: str, logit_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LOGIT_BYTES", logit_bytes)
    model = tiny.build_loaded(architecture, dtype=torch.float64)
    items = random_items(6, (7,))
    full, rows = plain_logits(model, items)
    targets = Targets.of(items, model.device)
    found = {metric: metric_values(model, rows, targets, metric, clean=rows.flip(0)) for metric in METRICS}
    measured = outcomes(model, rows, targets)
    for i, item in enumerate(items):
        p = full[i].softmax(-1)
        answers, foils = list(item.answer_ids), list(item.foil_ids)
        by_hand = {
            "log_prob": math.log(float(p[answers].sum())),
            "logit_diff": float(full[i][answers].mean() - full[i][foils].mean()),
            "prob_diff": float(p[answers].sum() - p[foils].sum()),
            "kl": float(torch.distributions.kl_divergence(*map(Categorical, (full[-1 - i].softmax(-1), p)))),
            "argmax": float(int(full[i].argmax()) in answers),
            "candidates": float(full[i][answers].max() > full[i][foils].max()),
        }
        for metric in METRICS:
            assert float(found[metric][i]) == pytest.approx(by_hand[metric], abs=1e-12)
        for name, values in measured.items():
            assert float(values[i]) == pytest.approx(by_hand[name], abs=1e-12), name
    assert set(measured) == {"argmax", "candidates", "log_prob", "logit_diff", "prob_diff"}


def test_any_answer_may_be_the_most_likely_token_and_padding_is_none() -> None:
    model = tiny.build_loaded("gpt2", dtype=torch.float64)
    items = random_items(2, (7,))
    full, rows = plain_logits(model, items)
    best = full.argmax(1).tolist()
    wrong = next(token for token in range(3, 40) if token not in best)
    first = [
        replace(items[0], answer_ids=(wrong, best[0]), foil_ids=()),
        replace(items[1], answer_ids=(wrong,), foil_ids=()),
    ]
    assert outcomes(model, rows, Targets.of(first, model.device))["argmax"].tolist() == [1.0, 0.0]
    with torch.no_grad():  # token 0, with which id lists are padded, becomes the most likely
        model.module.get_input_embeddings().weight[0] = 20 * rows[1] / rows[1].norm()
    padded = [
        replace(items[0], answer_ids=(1, 2), foil_ids=()),
        replace(items[1], answer_ids=(1,), foil_ids=()),
    ]
    full, rows = plain_logits(model, items)
    assert int(full[1].argmax()) == 0
    assert float(outcomes(model, rows, Targets.of(padded, model.device))["argmax"][1]) == 0.0


def test_a_tie_of_candidates_is_wrong() -> None:
    model = tiny.build_loaded("gpt2", dtype=torch.float64)
    weight = model.module.get_input_embeddings().weight
    with torch.no_grad():
        weight[4] = weight[3]  # tied to the unembedding: both tokens always have the same logit
    items = [FakeItem(0, (5, 6, 7), (5, 6, 8), (3,), (4,))]
    _, rows = plain_logits(model, items)
    found = outcomes(model, rows, Targets.of(items, model.device))
    assert (float(found["candidates"]), float(found["logit_diff"])) == (0.0, 0.0)


def test_without_foils_there_are_no_contrasts() -> None:
    model = tiny.build_loaded("gpt2", dtype=torch.float64)
    items = random_items(3, (7,), foils=False)
    full, rows = plain_logits(model, items)
    found = outcomes(model, rows, Targets.of(items, model.device))
    assert set(found) == {"argmax", "log_prob", "prob_diff"}
    p = full[1].softmax(-1)[list(items[1].answer_ids)].sum()
    assert float(found["prob_diff"][1]) == pytest.approx(float(p), abs=1e-12)


def test_refusals() -> None:
    with pytest.raises(UsageError, match="Did you mean 'log_prob'"):
        check_metric("logprob", [])
    with pytest.raises(UsageError, match="example 10 has no foil"):
        check_metric("logit_diff", random_items(1, foils=False))
    with pytest.raises(UsageError, match="no answer"):
        Targets.of([FakeItem(0, (3,), (3,), ())], torch.device("cpu"))
    with pytest.raises(UsageError, match="both answer and foil"):
        Targets.of([FakeItem(0, (3,), (3,), (5,), (5,))], torch.device("cpu"))


def test_the_last_rows_are_contiguous() -> None:
    assert last_rows(torch.zeros(3, 4, 5)).is_contiguous()
