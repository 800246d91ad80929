"""Items on local processes, each of which takes one after another; a process that dies is replaced."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from circuittest.sweep.items import Item

Work = Callable[[Item, str], dict[str, Any]]
TRIES = 2


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    item: Any = None


def on_processes(
    todo: Sequence[Item], folder: str, work: Work, workers: int
) -> Iterator[tuple[Item, dict[str, Any] | None]]:
    """Results as they come; None for an item over which its worker died twice.

    What an item raises is raised here, and all workers are stopped; so they are where the caller stops early.
    """
    waiting, tries = deque(todo), dict.fromkeys(todo, 0)
    alive: set[_Worker] = set()
    busy: dict[Any, _Worker] = {}

    def give(worker: _Worker | None) -> None:
        """The next item to a worker, or to a new one."""
        if not waiting:
            return
        one = waiting.popleft()
        tries[one] += 1
        if worker is None:
            worker = _started(folder, work)
            alive.add(worker)
        worker.item = one
        busy[worker.pipe] = worker
        with suppress(
            OSError
        ):  # it died while it had nothing to do: its pipe is at an end, which is seen below
            worker.pipe.send(one)

    try:
        for _ in range(min(workers, len(todo))):
            give(None)
        while busy:
            for pipe in wait(list(busy)):
                worker = busy.pop(pipe)
                one = worker.item
                try:
                    result, error = worker.pipe.recv()
                except (EOFError, OSError):
                    _stop(worker)
                    alive.remove(worker)
                    if tries[one] < TRIES:
                        waiting.append(one)
                        give(None)
                    else:
                        give(None)
                        yield one, None
                    continue
                if error is not None:
                    raise error
                give(worker)
                yield one, result
    finally:
        for worker in alive:
            worker.process.terminate()
        for worker in alive:
            _stop(worker)


def _stop(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.terminate()
    worker.process.join()


def _started(folder: str, work: Work) -> _Worker:
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, folder, work), daemon=True)
    process.start()
    theirs.close()  # or its end would never be seen
    return _Worker(process, ours)


def _serve(pipe: Connection, folder: str, work: Work) -> None:
    """Run items until nobody sends any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver stops its workers
    while True:
        try:
            one = pipe.recv()
        except EOFError:
            return
        try:
            answer: tuple[Any, Exception | None] = (work(one, folder), None)
        except Exception as error:
            answer = (None, error)
        try:
            pipe.send(answer)
        except OSError:  # the driver is gone; the result is written
            return
