"""Ising couplings of all heads at once, against scikit-learn's logistic regression head by head, to the same optimum.

    OMP_NUM_THREADS=1 python -m benchmarks.ising [--heads 256] [--examples 2000] [--strength 0.01] [--json PATH]

Needs scikit-learn, which circuittest does not: ``pip install scikit-learn``. Spins have twenty common causes, each of
which reaches 15 % of the heads. The largest difference of a coupling is printed beside the times, and the time that
choosing the penalty by cross-validation takes. Times are of the process (CPU), so that a busy machine counts less.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from circuittest.find.ising import fit_ising, spins


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--heads", type=int, default=256)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--strength", type=float, default=0.01)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    s = drawn(arguments.examples, arguments.heads)
    ours, own = timed(lambda: fit_ising(s, strength=arguments.strength).couplings)
    theirs, peer = timed(lambda: one_by_one(s, arguments.strength))
    _, choosing = timed(lambda: fit_ising(s).couplings)
    found = {
        "heads": arguments.heads,
        "examples": arguments.examples,
        "strength": arguments.strength,
        "seconds": own,
        "seconds_scikit_learn": peer,
        "ratio": peer / own,
        "seconds_with_choice_of_penalty": choosing,
        "largest_difference": float(np.abs(ours - theirs).max()),
        "largest_coupling": float(np.abs(theirs).max()),
    }
    for name, value in found.items():
        print(f"{name:32} {value:.4g}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def drawn(examples: int, heads: int, seed: int = 0) -> np.ndarray:
    """Spins with common causes."""
    rng = np.random.default_rng(seed)
    reach = rng.standard_normal((20, heads)) * (rng.random((20, heads)) < 0.15)
    signal = rng.standard_normal((examples, 20)) @ reach + rng.standard_normal((examples, heads))
    return spins(signal).values


def one_by_one(s: np.ndarray, strength: float) -> np.ndarray:
    """The couplings by scikit-learn, one regression for each head; its tolerance is that of the same optimum."""
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise SystemExit(
            "this compares with scikit-learn, which is not installed: pip install scikit-learn"
        ) from None
    n, heads = s.shape
    halves = np.zeros((heads, heads))
    for head in range(heads):
        others = np.delete(np.arange(heads), head)
        model = LogisticRegression(C=1 / (n * strength), tol=1e-6, max_iter=2000)
        halves[others, head] = model.fit(s[:, others], s[:, head]).coef_[0] / 2
    return (halves + halves.T) / 2


def timed(make: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    """What a call gives, and its seconds."""
    start = time.process_time()
    result = make()
    return result, time.process_time() - start


if __name__ == "__main__":
    main()
