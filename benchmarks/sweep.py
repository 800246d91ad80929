"""What a sweep's items cost, and what running them elsewhere costs beside that: ratios to the run in process.

    python benchmarks/sweep.py [--workers 2] [--ray] [--models zoo:gqa zoo:gqa@benign …] [--repeats 1]

One series of small models, judged by one spec, in a fresh folder and without a store: in process, on local processes,
and on a local Ray cluster of as many CPUs (``--ray``, needs ``circuittest[ray]``). All must leave the same bytes. The
last run is in process again over what is there, and measures nothing.

``--units MODEL …`` measures instead what an item is made of, in plain forwards of one prompt (of a batch of them, as
transformers runs it): scores by EAP-IG of every edge, an ablated set of ten heads on one example, scores of roles; and
the bytes of the tables. docs/scale.md plans with these.

A ratio below 1 needs as many free cores as there are workers: on one core it is what starting processes and Ray costs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from circuittest.sweep import load_series, run

MODELS = ("zoo:gqa", "zoo:gqa@benign", "zoo:gqa-mha", "zoo:mha")
SPEC = """\
circuittest: 1
model: zoo:gqa
task: {name: ioi, discover: 100, evaluate: 100, seed: 0}
circuit: {method: eap, universe: heads, top: 20%, at: 95}
claims:
  - reuse: {min: 0.25}
  - necessity: {min: 0.3, controls: 40}
"""


def files(folder: Path) -> dict[str, bytes]:
    """What a run left."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def timed(work: Callable[[], object]) -> float:
    """Seconds by the clock."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cpu(work: Callable[[], object]) -> float:
    """Seconds of CPU time, which other programs hardly change; on one thread."""
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Print a row for each way of running, and fail where two ways leave other bytes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ray", action="store_true", help="on a local Ray cluster, too")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--repeats", type=int, default=1, help="the smallest time counts (default: 1)")
    parser.add_argument("--units", nargs="+", metavar="MODEL", help="what items are made of, on these models")
    parser.add_argument("--examples", type=int, default=20, help="of each split, for --units (default: 20)")
    arguments = parser.parse_args()
    if arguments.units:
        for model in arguments.units:
            units(model, arguments.examples)
        return
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        (home / "ioi.circuit.yaml").write_text(SPEC)
        path = home / "series.yaml"
        listed = ", ".join(f"'{model}'" for model in arguments.models)
        path.write_text(f"circuittest: 1\nmodels: [{listed}]\nspecs: [ioi.circuit.yaml]\n")
        series = load_series(path)
        run(series, home / "warm", device="cpu")  # what is loaded once
        ways: dict[str, dict[str, object]] = {
            "in process": {},
            f"{arguments.workers} processes": {"workers": arguments.workers},
        }
        if arguments.ray:
            import ray

            began = timed(
                lambda: ray.init(num_cpus=arguments.workers, include_dashboard=False, log_to_driver=False)
            )
            print(f"starting Ray: {began:.1f} s")
            ways[f"Ray, {arguments.workers} CPUs"] = {"ray": "auto"}
        seconds = dict.fromkeys(ways, float("inf"))
        for repeat in range(arguments.repeats):
            for number, (way, how) in enumerate(ways.items()):
                out = home / f"out-{number}-{repeat}"
                taken = timed(lambda out=out, how=how: run(series, out, device="cpu", **how))
                seconds[way] = min(seconds[way], taken)
                if files(out) != files(home / "warm"):
                    raise SystemExit(f"{way}: other bytes than in process")
        again = timed(lambda: run(series, home / "warm", device="cpu", done=_kept))
        one = seconds["in process"] / len(series.models)
        size = sum(map(len, files(home / "warm").values())) / len(series.models)
        for way, taken in seconds.items():
            print(f"{way}: {taken:.1f} s, {taken / seconds['in process']:.2f} of in process, the same bytes")
        print(f"an item in process: {one:.2f} s; its result: {size / 1e3:.0f} kB; all again: {again:.2f} s")


def units(model: str, n: int) -> None:
    """Print what the parts of an item cost on a model, in plain forwards of one prompt."""
    import random

    import torch

    from circuittest.lab import Lab
    from circuittest.models import load_model

    torch.set_num_threads(1)
    began = time.process_time()
    loaded = load_model(model, device="cpu")
    loading = time.process_time() - began
    lab = Lab(loaded, "ioi", discover=n, evaluate=n)
    lab.outcomes([()])  # what is checked once
    items = lab.data.evaluate
    longest = max(len(item.prompt_ids) for item in items)
    rows = torch.tensor([[*item.prompt_ids, *[0] * (longest - len(item.prompt_ids))] for item in items])

    def forwards() -> None:
        with torch.no_grad():
            loaded.module(rows, use_cache=False)

    forwards()
    one = min(cpu(forwards) for _ in range(3)) / n
    heads = lab.layout.universe("heads")
    draw = random.Random(0)
    sets = [tuple(draw.sample(heads, 10)) for _ in range(20)]
    path = cpu(lambda: lab.scores("discover", universe="all", level="edges", method="eap-ig", steps=5))
    edges = len(lab.layout.universe("all")), sum(1 for _ in lab.layout.edges())
    parts = {
        "EAP-IG of every edge, an example": path / n,
        "EAP of every head, an example": cpu(lambda: lab.scores("discover")) / n,
        "a set of 10 heads, an example": cpu(lambda: lab.outcomes(sets)) / len(sets) / n,
        "patterns of attention, an example": cpu(lambda: lab.roles(["induction"])) / n,
        "what is moved, an example": cpu(lambda: lab.roles(["copy"])) / n,
    }
    print(f"{model}: {longest} tokens; loaded in {loading:.1f} s; a plain forward takes {1e3 * one:.2f} ms")
    for name, seconds in parts.items():
        print(f"  {name}: {seconds / one:.2f} forwards")
    print(f"  a table of scores: {4 * edges[0]} bytes an example of units, {4 * edges[1]} of edges")


def _kept(one: object, found: bool) -> None:
    if not found:
        raise SystemExit(f"{one} was measured again")


if __name__ == "__main__":
    main()
