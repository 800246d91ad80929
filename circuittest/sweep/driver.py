"""Running the items of a series that have no result yet: in process, on local processes, or on a Ray cluster.

Whoever runs an item writes its result, so that a killed worker or a killed driver loses no finished item, and running
again does what is left. An item whose worker died is tried once more; if that one dies too, the others are finished
before it is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from circuittest.errors import CircuittestError
from circuittest.sweep.items import Item, item, read_result, result_path, run_item
from circuittest.sweep.processes import on_processes
from circuittest.sweep.series import Series

Results = Iterator[tuple[Item, dict[str, Any] | None]]


def run(
    series: Series,
    folder: str | Path,
    *,
    workers: int = 0,
    ray: str | None = None,
    gpus: float = 0,
    memory: int | None = None,
    device: str = "auto",
    dtype: str = "float32",
    threads: int = 1,
    store: str | None = None,
    done: Callable[[Item, bool], None] = lambda one, found: None,
    work: Callable[[Item, str], dict[str, Any]] = run_item,
) -> list[dict[str, Any]]:
    """Every spec on every model; results in that order, specs outermost.

    Parameters
    ----------
    folder:
        Where results are, and are looked for first; shared between machines when Ray is used.
    workers:
        Local processes; 0 runs in this one.
    ray:
        Address of a Ray cluster, or "local"; needs ``circuittest[ray]``.
    gpus, memory:
        What one item takes of a Ray worker: GPUs, and bytes.
    device, dtype, threads:
        How models run; "auto" is what it is on this machine. One thread by default, so that the numbers do not depend
        on the machine's cores.
    store:
        Path or URL of a store that all share.
    done:
        Called after each item, and whether its result was there already.
    work:
        What runs an item and writes its result.

    Raises
    ------
    CircuittestError
        What an item raised (a spec that does not fit a model, a model that cannot be loaded), or that workers died.
    """
    place = Path(folder).resolve()
    how: dict[str, Any] = {"device": device, "dtype": dtype, "threads": threads, "store": store}
    how |= {"roles": series.roles, "resamples": series.resamples}
    models = list(zip(series.models, series.places, strict=True))
    items = [item(spec, name, where, **how) for spec in series.specs for name, where in models]
    found: dict[str, dict[str, Any]] = {}
    todo = []
    for one in items:
        kept = read_result(result_path(place, one))
        if kept is None:
            todo.append(one)
        else:
            found[one.key] = kept
            done(one, True)
    dead = []
    for one, result in _results(todo, str(place), work, workers, ray, gpus, memory):
        if result is None:
            dead.append(one)
        else:
            found[one.key] = result
            done(one, False)
    if dead:
        raise CircuittestError(
            f"workers died twice over {', '.join(map(str, dead))}",
            "the system may have killed them for their memory",
            "run again with fewer workers; what is finished is kept",
        )
    return [found[one.key] for one in items]


def _results(
    todo: Sequence[Item],
    folder: str,
    work: Callable[[Item, str], dict[str, Any]],
    workers: int,
    ray: str | None,
    gpus: float,
    memory: int | None,
) -> Results:
    """The results as they come; None for an item over which workers died."""
    if not todo:
        return
    if ray is not None:
        from circuittest.sweep.cluster import on_ray

        yield from on_ray(todo, folder, work, ray, gpus=gpus, memory=memory)
    elif workers:
        yield from on_processes(todo, folder, work, workers)
    else:
        for one in todo:
            yield one, work(one, folder)
