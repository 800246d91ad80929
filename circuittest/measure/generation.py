"""What a model writes after a prompt: the most likely token, again and again."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence

import torch
from transformers import DynamicCache

from circuittest.measure.batches import BATCH_BYTES, bytes_per_example, context
from circuittest.measure.metrics import last_rows, logits
from circuittest.models.loaded import LoadedModel

Ids = tuple[int, ...]


def greedy(
    model: LoadedModel, prompts: Sequence[Ids], *, most: int, done: Callable[[Ids], bool]
) -> list[Ids]:
    """Per prompt, the tokens that the untouched model writes after it, each the most likely one; of equal ones the
    smaller id.

    The model's own settings for generation (temperature, penalties, stop words) play no part. What all prompts begin
    with is read once, and keys and values are kept; both change rounding alone, which decides only between tokens that
    are as good as equally likely.

    Parameters
    ----------
    prompts:
        Token ids, none empty.
    most:
        Tokens after which writing stops; the model's context may end before.
    done:
        Whether what was written so far, the last token included, is all. It is asked after each token.
    """
    found: list[Ids] = [()] * len(prompts)
    if not prompts:
        return found
    shared = _shared(prompts)
    with model.measuring(), torch.no_grad():
        # releases of transformers differ in what they call it
        known = inspect.signature(model.trunk.forward).parameters
        keyword = "cache" if "cache" in known else "past_key_values"
        start = DynamicCache(config=model.trunk.config)
        if shared:
            ids = torch.tensor([shared], device=model.device)
            model.trunk(input_ids=ids, use_cache=True, **{keyword: start})
        for rows in _batches(model, prompts, most):
            limit = context(model)
            length = len(prompts[rows[0]])
            cache = copy.deepcopy(start)
            if shared:
                cache.batch_repeat_interleave(len(rows))
            ids = torch.tensor([prompts[row][len(shared) :] for row in rows], device=model.device)
            writing = set(rows)
            for _ in range(most if limit is None else min(most, limit - length)):
                read = model.trunk(input_ids=ids, use_cache=True, **{keyword: cache})
                ids = logits(model, last_rows(read.last_hidden_state)).argmax(1, keepdim=True)
                for row, token in zip(rows, ids[:, 0].tolist(), strict=True):
                    if row in writing:
                        found[row] = (*found[row], token)
                        if done(found[row]):
                            writing.remove(row)
                if not writing:
                    break
    return found


def _shared(prompts: Sequence[Ids]) -> Ids:
    """What all begin with, short of the last token of each: every row has one of its own to go on from."""
    low, high = min(prompts), max(prompts)  # the two that differ first
    same = 0
    while same < min(map(len, prompts)) - 1 and low[same] == high[same]:
        same += 1
    return low[:same]


def _batches(model: LoadedModel, prompts: Sequence[Ids], most: int) -> Iterator[list[int]]:
    """Rows of prompts of one length, as many at a time as memory is meant for."""
    of_length: dict[int, list[int]] = {}
    for row, prompt in enumerate(prompts):
        of_length.setdefault(len(prompt), []).append(row)
    for length, rows in sorted(of_length.items()):
        size = max(1, BATCH_BYTES // bytes_per_example(model, length + most))
        for first in range(0, len(rows), size):
            yield rows[first : first + size]
