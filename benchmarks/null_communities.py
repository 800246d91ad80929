"""Communities of heads that have nothing in common: how often does closure call one a circuit?

    OMP_NUM_THREADS=1 python -m benchmarks.null_communities [--labs 200] [--most 1] [--json PATH]

Signals of 48 heads are independent normal numbers, so that clusters are random sets whatever the heads do; the penalty
is given, since one chosen by held-out signals proposes nothing here. What heads do is drawn anew for every lab, from
populations between "each a little" and "one head does it all". Counted are labs in which some community is called
load-bearing (or interfering); a test at the level 0.025 does so in at most 2.5 % of them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from circuittest.circuit import prompt_digest
from circuittest.find.cluster_scores import isolation
from circuittest.find.communities import Community, Proposal, structure
from circuittest.find.spectral import spectral_clusters
from circuittest.lab.judging import judged
from circuittest.measure.signals import Signals
from circuittest.tables import OutcomeTable, ScoreTable
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

LAYOUT = Layout(n_layers=6, n_heads=8, n_kv_heads=8)
HEADS = LAYOUT.units(("head",))
K, STRENGTH = 8, 0.01
Floats = NDArray[np.float64]
#: From random numbers to what each head's ablation costs, in nats; costs add up.
POPULATIONS: dict[str, Callable[[np.random.Generator], Floats]] = {
    "each a little": lambda rng: rng.normal(0.08, 0.08, len(HEADS)),
    "heavy tails": lambda rng: 0.05 * np.abs(rng.standard_t(2, len(HEADS))),
    "five of 48": lambda rng: _few(rng, 5, 0.8),
    "one of 48": lambda rng: _few(rng, 1, 3.0),
}


def _few(rng: np.random.Generator, count: int, cost: float) -> Floats:
    costs = np.full(len(HEADS), 0.01)
    costs[rng.permutation(len(HEADS))[:count]] = cost
    return costs


class NullLab(TableLab):
    """Signals are independent, and head h costs costs[h] wherever it is ablated, a little more or less by example."""

    def __init__(self, costs: Floats, seed: int) -> None:
        super().__init__(lambda *_: 0.0, layout=LAYOUT, data=task_data(240, 60))
        rng = np.random.default_rng([seed, 1])
        count = 300
        self.drawn = {"discover": rng.standard_normal((240, len(HEADS)))}
        self.drawn["evaluate"] = rng.standard_normal((60, len(HEADS)))
        self.resting = rng.random(len(HEADS))
        self.costs = costs[:, None] * (1 + 0.3 * rng.uniform(-1, 1, (len(HEADS), count)))
        self.level = 4.0 + rng.uniform(-1, 1, count)

    def signals(self, split: str = "discover", *, sink: bool = True) -> Signals:  # type: ignore[override]
        """Independent ones, and a rest on the first token that is the same on all examples."""
        examples = tuple(item.index for item in getattr(self.data, split))
        rest = np.tile(self.resting, (len(examples), 1))
        table = lambda values: ScoreTable(values.astype(np.float32), HEADS, examples)
        return Signals(table(self.drawn[split]), table(rest))

    def outcomes(self, sets: Sequence[Iterable[Unit]], **_: Any) -> OutcomeTable:  # type: ignore[override]
        """Log-probability and logit difference fall by the sum of the costs; right is what is above 2."""
        named = tuple(tuple(sorted(set(units))) for units in sets)
        member = np.array([[unit in units for unit in HEADS] for units in map(frozenset, named)], dtype=float)
        examples = tuple(item.index for item in self.data.evaluate)
        graded = self.level[list(examples)] - member @ self.costs[:, list(examples)]
        graded[member.all(1)] = 0.0
        right = (graded > 2).astype(float)
        columns = {"argmax": right, "candidates": right, "log_prob": graded, "logit_diff": graded}
        return OutcomeTable(named, columns, examples)


def one(population: str, seed: int, **how: Any) -> list[str]:
    """The verdicts of one lab's communities."""
    lab = NullLab(POPULATIONS[population](np.random.default_rng([seed, 0])), seed)
    whole = structure(lab.drawn["discover"], HEADS, strength=STRENGTH, seed=seed)
    clusters = spectral_clusters(np.abs(whole.matrix), K, seed=seed)
    rows = [np.flatnonzero(clusters == number).tolist() for number in range(K)]
    prompts = [prompt_digest(item.prompt_ids) for item in lab.data.discover]
    proposed = tuple(
        Community(
            f"C{number}",
            tuple(whole.units[row] for row in part),
            isolation(whole.matrix, part),
            origin={"method": "co-activation", "prompts": prompts},
        )
        for number, part in enumerate(rows)
    )
    found = judged(lab, Proposal(proposed, whole, K), control_seed=seed, **how)  # type: ignore[arg-type]
    return [one.verdict for one in found.communities]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--labs", type=int, default=200)
    parser.add_argument("--most", type=int, help="communities judged in each lab (default: all)")
    parser.add_argument("--matches", default="kind", help="kinds of controls, with commas (default: kind)")
    parser.add_argument("--populations", nargs="+", choices=list(POPULATIONS), default=list(POPULATIONS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    for population in options.populations:
        how = {"most": options.most, "matches": tuple(options.matches.split(","))}
        verdicts = [one(population, seed, **how) for seed in range(options.labs)]
        found[population] = {
            name: sum(name in labs for labs in verdicts) for name in ("load-bearing", "interfering")
        }
        told = ", ".join(f"{name} {_rate(k, options.labs)}" for name, k in found[population].items())
        count = sum(verdict not in ("proposed", "invalid") for labs in verdicts for verdict in labs)
        print(f"{population:14} labs with one {told}; {count / options.labs:.1f} judged a lab", flush=True)
    if options.json:
        options.json.write_text(
            json.dumps({"labs": options.labs, **found}, indent=1) + "\n", encoding="utf-8"
        )


def _rate(k: int, n: int) -> str:
    low = 0.0 if k == 0 else float(beta.ppf(0.025, k, n - k + 1))
    high = 1.0 if k == n else float(beta.ppf(0.975, k + 1, n - k))
    return f"{k / n:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
