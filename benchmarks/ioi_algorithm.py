"""Do models do IOI as Wang et al. describe it? Heads found on one half of the examples, shares measured on the other.

    python -m benchmarks.ioi_algorithm [--models zoo:mha zoo:gqa] [--smollm2] [--discover 100] [--evaluate 200]

For each model the heads of each kind, what S-inhibition heads carry, and the three shares with their 95 % intervals
(`circuittest.claims.ioi_algorithm`); and the direct paths along which the answer in fact runs: the heads with the
largest direct effects.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import torch
from rich.console import Console

from circuittest.errors import CircuittestError
from circuittest.lab import Lab

LARGEST = 6


def report(lab: Lab, mlps: str) -> Iterator[str]:
    """Lines of text on one model."""
    found = lab.ioi_algorithm(mlps=mlps)
    heads = found.heads
    scores = heads.scores
    for mover in heads.name_movers:
        looks = {kind: scores[kind][mover] for kind in ("copy", "answer-token", "foil-token")}
        yield f"name mover {mover}: {', '.join(f'{kind} {value:.2f}' for kind, value in looks.items())}"
    for head, signals in heads.signals.items():
        carried = ", ".join(
            f"{kind} {one.value:+.4f} [{one.interval[0]:+.4f}, {one.interval[1]:+.4f}]"
            for kind, one in signals.items()
        )
        kind = "S-inhibition" if head in heads.s_inhibition else "candidate"
        yield f"{kind} {head}: {carried}"
    for kind, those in (("induction", heads.induction), ("duplicate-token", heads.duplicate_token)):
        for head in those:
            yield f"{kind} {head}: score {scores[kind][head]:.2f}"
    for name, share in found.shares.items():
        if share.invalid:
            yield f"share of {name}: undefined, {share.invalid}"
        else:
            low, high = share.interval
            whole = share.details["effect_whole"]
            yield (
                f"share of {name}: {share.value:.2f} [{low:.2f}, {high:.2f}] of {whole['value']:+.2f} "
                f"[{whole['interval'][0]:+.2f}, {whole['interval'][1]:+.2f}], m = {share.details['m']:+.2f}"
            )
    for stage, effects in heads.effects.items():
        largest = sorted(effects.items(), key=lambda pair: -abs(pair[1]))[:LARGEST]
        yield f"largest effects on {stage}: {', '.join(f'{head} {value:+.3f}' for head, value in largest) or '–'}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=["zoo:mha", "zoo:gqa"])
    parser.add_argument("--smollm2", action="store_true", help="SmolLM2-135M from its wheel on PyPI, too")
    parser.add_argument("--discover", type=int, default=100)
    parser.add_argument("--evaluate", type=int, default=200)
    parser.add_argument("--mlps", choices=("frozen", "recomputed"), default="frozen")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console = Console(width=160, highlight=False)
    places = {name: (name, "auto") for name in options.models}
    if options.smollm2:
        from example_suites.smollm2.conftest import gguf

        file = gguf()
        if isinstance(file, str):
            sys.exit(file)
        places["SmolLM2-135M-Instruct"] = (str(file), "<|endoftext|>")
    for name, (place, prefix) in places.items():
        lab = Lab(place, "ioi", discover=options.discover, evaluate=options.evaluate, prefix=prefix)
        console.print(f"[bold]{name}[/bold], {lab.layout.describe()}")
        try:
            for line in report(lab, options.mlps):
                console.print(f"  {line}", soft_wrap=True, markup=False)
        except CircuittestError as error:
            console.print(f"  {error}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    main()
