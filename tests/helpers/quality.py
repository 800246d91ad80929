"""How well attribution ranks the heads of a real model, held against exact interventions on the same examples.

    python -m tests.helpers.quality smollm2 40

prints everything as JSON. Run it in a process of its own: the peak of its memory is among what is measured.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from circuittest.tables import ScoreTable

TOP = 10
#: Label → what `attribute` is given.
APPROXIMATIONS: dict[str, dict[str, Any]] = {
    "eap, edge-abs-sum": {},
    "eap, node": {"unit_score": "node"},
    "eap, node, baseline zero": {"unit_score": "node", "baseline": "zero"},
    "eap-ig (5 steps), edge-abs-sum": {"method": "eap-ig"},
    "eap-ig (5 steps), node": {"method": "eap-ig", "unit_score": "node"},
}
#: What each head alone is replaced by.
EXACT = ("zero", "counterfactual")
HALVES = "exact, even against odd examples"


@dataclass(frozen=True)
class Agreement:
    """Two rankings of the same units.

    Attributes
    ----------
    spearman:
        Rank correlation of the units' importances.
    top:
        How many of the `TOP` most important units are the same.
    """

    spearman: float
    top: int


def importance(table: ScoreTable) -> NDArray[np.float64]:
    """Size of the mean effect of each unit over the examples; scores of either sign count alike."""
    return np.abs(table.values.astype(np.float64).mean(0))


def agreement(scores: ScoreTable, exact: ScoreTable) -> Agreement:
    """Compare two tables with the same columns."""
    if scores.members != exact.members:
        raise ValueError("the tables are about different units")
    a, b = importance(scores), importance(exact)
    first, second = (set(np.argsort(-values, kind="stable")[:TOP].tolist()) for values in (a, b))
    return Agreement(float(spearmanr(a, b).statistic), len(first & second))


def halves(table: ScoreTable) -> Agreement:
    """The agreement of a table's even examples with its odd ones: what so many examples can show at all."""
    rows = range(len(table.examples))
    return agreement(table.rows(rows[::2]), table.rows(rows[1::2]))


def measure(name: str, examples: int) -> dict[str, Any]:
    """Every comparison on one model (see `tests.helpers.real`), as plain JSON.

    ``missing`` alone, saying why, where the model cannot be had. Else ``rows`` {label: [[Spearman, top] against each
    of `EXACT`]}, ``other`` the same of the exact tables with each other, the ``seconds`` of every table, and the
    process's peak in GB when the model was ``loaded`` and checked, and its ``peak`` after all attribution, before the
    exact tables.
    """
    import torch

    from circuittest import Lab
    from circuittest.measure.attribution import attribute
    from tests.helpers.real import PREFIXES, file_of

    file = file_of(name)
    if isinstance(file, str):
        return {"missing": file}
    lab = Lab(str(file), "ioi", discover=examples, evaluate=1, prefix=PREFIXES[name], name=name)
    items = lab.data.discover
    tables: dict[str, ScoreTable] = {}
    seconds: dict[str, float] = {}
    loaded = peak()

    def timed(label: str, **how: Any) -> None:
        start = time.perf_counter()
        tables[label] = attribute(lab.model, items, metric="logit_diff", kinds=("head",), **how)
        seconds[label] = time.perf_counter() - start
        sys.stderr.write(f"{name}: {label}: {seconds[label]:.0f} s, peak {peak():.2f} GB\n")

    for label, how in APPROXIMATIONS.items():
        timed(label, **how)
    attributed = peak()
    for value in EXACT:
        timed(value, method="exact", baseline=value)
    compared = {
        label: [agreement(tables[label], tables[value]) for value in EXACT] for label in APPROXIMATIONS
    }
    compared[HALVES] = [halves(tables[value]) for value in EXACT]
    other = agreement(tables["zero"], tables["counterfactual"])
    return {
        "rows": {label: [[one.spearman, one.top] for one in found] for label, found in compared.items()},
        "other": [other.spearman, other.top],
        "seconds": seconds,
        "heads": len(tables["zero"].members),
        "examples": len(items),
        "loaded": loaded,
        "peak": attributed,
        "fingerprint": lab.fingerprint,
        "threads": torch.get_num_threads(),
    }


def peak() -> float:
    """GB that this process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
