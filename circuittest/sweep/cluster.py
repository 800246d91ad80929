"""Items on a Ray cluster, whose machines share the folders of models, specs and results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from circuittest.errors import CircuittestError, UsageError
from circuittest.sweep.items import Item
from circuittest.sweep.processes import TRIES

Work = Callable[[Item, str], dict[str, Any]]


def on_ray(
    todo: Sequence[Item], folder: str, work: Work, address: str, *, gpus: float = 0, memory: int | None = None
) -> Iterator[tuple[Item, dict[str, Any] | None]]:
    """Results as they come; None for an item over which its worker died twice.

    Parameters
    ----------
    address:
        Of the cluster, "auto" for the one of this machine, or "local" to start one here for this run.
    gpus, memory:
        What one item takes: GPUs, and bytes.

    Raises
    ------
    UsageError
        Ray is not installed, or there is no cluster at the address.
    CircuittestError
        What an item raised.
    """
    try:
        import ray
    except ImportError:
        raise UsageError("Ray is not installed", "", "run: pip install 'circuittest[ray]'") from None

    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address, log_to_driver=False, include_dashboard=False, configure_logging=False)
        # without a common base: there is no cluster, or it does not start in time
        except Exception as error:
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            here = address == "local"
            what = "Ray does not start here" if here else f"there is no Ray cluster at {address!r}"
            raise UsageError(what, why, "start it: ray start --head") from error
    try:
        wants: dict[str, Any] = {"num_cpus": 1, "num_gpus": gpus, "max_retries": TRIES - 1}
        if memory is not None:
            wants["memory"] = memory
        remote = ray.remote(**wants)(_there)
        left = {remote.remote(one, folder, work, os.getcwd()): one for one in todo}
        while left:
            for reference in ray.wait(list(left))[0]:
                one = left.pop(reference)
                yield one, _result(ray, reference)
    finally:
        if ours:
            ray.shutdown()


def _there(one: Item, folder: str, work: Work, directory: str) -> dict[str, Any]:
    """Run an item where relative paths mean the same as for the driver."""
    os.chdir(directory)
    return work(one, folder)


def _result(ray: Any, reference: Any) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, CircuittestError):
            raise error.cause from None
        raise
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError):
        return None
    return found
