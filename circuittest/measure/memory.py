"""When memory runs out: the batch is halved, and it is said."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch

from circuittest.measure.batches import Batch

_LOG = logging.getLogger("circuittest")
_WORDS = ("out of memory", "not enough memory", "DefaultCPUAllocator")


class Fallbacks:
    """How often batches were halved in this process: what was measured then has another layout than usual."""

    count = 0


def out_of_memory(error: BaseException) -> bool:
    """Is this how torch says that an allocation failed, on any device?"""
    if isinstance(error, (torch.cuda.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _WORDS)


def within_memory(batches: Sequence[Batch], work: Callable[[Batch], None]) -> list[Batch]:
    """Work on every batch, halving one and all after it where memory runs out; the batches that were run.

    Work on a batch may be interrupted and started again on its halves. A batch of one example that does not fit
    raises what torch raised.
    """
    done: list[Batch] = []
    waiting = list(reversed(batches))
    limit: int | None = None
    while waiting:
        batch = waiting.pop()
        count = len(batch.rows)
        if limit is not None and count > limit:
            waiting += [batch.part(count // 2, count), batch.part(0, count // 2)]
            continue
        if _fits(work, batch):
            done.append(batch)
            continue
        limit = count // 2
        Fallbacks.count += 1
        waiting.append(batch)
        _LOG.warning(
            "memory ran out on %d examples of %d tokens; going on with at most %d at a time",
            count,
            batch.length,
            limit,
        )
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return done


def _fits(work: Callable[[Batch], None], batch: Batch) -> bool:
    """Work on a batch; False where memory ran out. What the failed attempt held is free when this returns."""
    try:
        work(batch)
    except (RuntimeError, MemoryError) as error:
        if len(batch.rows) == 1 or not out_of_memory(error):
            raise
        return False
    return True
