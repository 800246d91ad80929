"""Communities of heads that are active together. They are *proposals*: co-activation proposes, ablation disposes.

Heads are clustered by how much their signals go together on discovery examples (Xu, arXiv 2606.09607). That is cheap,
and shows nothing about function: heads that share an input, or that rest on the first token together, form communities,
too. A `Community` is therefore no `Circuit`; it gives one only after closure has found it load-bearing on other
examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from circuittest.circuit import Circuit
from circuittest.errors import UsageError
from circuittest.find.affinity import mutual_information, pearson
from circuittest.find.cluster_scores import adjusted_rand
from circuittest.find.ising import Ising, Penalty, fit_ising, spins
from circuittest.find.spectral import spectral_clusters
from circuittest.stats.resampling import generator
from circuittest.units import Unit

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]
Affinity = Literal["ising", "pearson", "pearson-spins", "mutual-information"]

AFFINITIES = ("ising", "pearson", "pearson-spins", "mutual-information")
#: Numbers of clusters that are tried, those of arXiv 2606.09607.
KS = (4, 6, 8, 10, 12)
#: Random halvings over which the stability of a clustering is averaged.
HALVINGS = 5


@dataclass(frozen=True, eq=False)
class Structure:
    """How much the signals of heads go together.

    Attributes
    ----------
    units:
        The heads that take part, in the order of the rows.
    matrix:
        [F × F] signed couplings or correlations, or mutual information; zero diagonal.
    left_out:
        Heads that do not take part → why.
    affinity:
        What the matrix holds.
    ising:
        The fit, where it holds couplings.
    """

    units: tuple[Unit, ...]
    matrix: Floats
    left_out: Mapping[Unit, str]
    affinity: Affinity
    ising: Ising | None = None

    def rows(self, units: Sequence[Unit]) -> list[int]:
        """The rows of some of the units, in their order."""
        place = {unit: row for row, unit in enumerate(self.units)}
        return [place[unit] for unit in units]


def structure(
    signal: ArrayLike,
    units: Sequence[Unit],
    *,
    affinity: Affinity = "ising",
    penalty: Penalty = "l2",
    strength: float | None = None,
    covariates: ArrayLike | None = None,
    seed: int = 0,
) -> Structure:
    """How much the columns of a signal [examples × units] go together.

    `penalty`, `strength`, `covariates` and `seed` are those of `circuittest.find.ising.fit_ising`. "pearson" takes the
    signal itself, the others its spins. Heads that do not vary, and those coupled to no other, are left out.

    Raises
    ------
    UsageError
        For an unknown affinity, covariates beside another affinity than "ising", and fewer than three heads that vary.
    """
    values = np.asarray(signal, dtype=np.float64)
    if affinity not in AFFINITIES:
        raise UsageError(f"unknown affinity {affinity!r}", "", f"known are {', '.join(AFFINITIES)}")
    if covariates is not None and affinity != "ising":
        raise UsageError(
            f"covariates with the affinity {affinity!r}", "it looks at two heads at a time", "use 'ising'"
        )
    if values.ndim != 2 or values.shape[1] != len(units):
        raise UsageError(f"a signal of shape {values.shape} for {len(units)} heads")
    cut = spins(values)
    left_out = {units[column]: f"constant: {reason}" for column, reason in cut.left_out.items()}
    if len(cut.kept) < 3:
        raise UsageError(
            f"the signals of {len(left_out)} of {len(units)} heads are constant",
            "communities need heads that vary",
            "use more or other examples, or leave the first token out",
        )
    ising = None
    if affinity == "ising":
        ising = fit_ising(cut.values, penalty=penalty, strength=strength, covariates=covariates, seed=seed)
        matrix = ising.couplings
    elif affinity == "mutual-information":
        matrix = mutual_information(cut.values)
    else:
        matrix = pearson(values[:, cut.kept] if affinity == "pearson" else cut.values)
    kept = [units[column] for column in cut.kept]
    alone = ~(np.abs(matrix) > 0).any(0)
    left_out |= {kept[row]: f"no {affinity} affinity to any other" for row in np.flatnonzero(alone).tolist()}
    there = np.flatnonzero(~alone)
    return Structure(
        tuple(kept[row] for row in there.tolist()), matrix[np.ix_(there, there)], left_out, affinity, ising
    )


def choose_k(
    signal: ArrayLike,
    whole: Structure,
    units: Sequence[Unit],
    ks: Sequence[int],
    *,
    covariates: ArrayLike | None = None,
    halvings: int = HALVINGS,
    seed: int = 0,
) -> dict[int, float]:
    """k → how well clusterings of random halves of the examples agree: mean adjusted Rand index over halvings.

    It is corrected for chance, so that different k compare, and needs no labels. Halves are fitted with the penalty of
    the whole. NaN where a k could not be tried (too few heads vary in a half).
    """
    values = np.asarray(signal, dtype=np.float64)
    beside = None if covariates is None else np.asarray(covariates, dtype=np.float64)
    rng = generator(seed)
    found: dict[int, list[float]] = {k: [] for k in ks}
    how: dict[str, Any] = {"affinity": whole.affinity}
    if whole.ising is not None:
        how |= {"penalty": whole.ising.penalty, "strength": whole.ising.strength}
    for _ in range(halvings):
        order = rng.permutation(len(values))
        halves = []
        for rows in (order[: len(order) // 2], order[len(order) // 2 :]):
            rows = np.sort(rows)
            extra: dict[str, Any] = {} if beside is None else {"covariates": beside[rows]}
            halves.append(structure(values[rows], units, **how, **extra))
        common = [unit for unit in whole.units if all(unit in half.units for half in halves)]
        for k in ks:
            if k >= len(common):
                continue
            one, other = (
                spectral_clusters(np.abs(half.matrix), k, seed=seed)[half.rows(common)] for half in halves
            )
            found[k].append(adjusted_rand(one, other))
    return {
        k: float(np.mean(values)) if len(values) == halvings else float("nan") for k, values in found.items()
    }


def best_k(scores: Mapping[int, float]) -> int:
    """The k with the highest score, the smaller one of equals. Raises UsageError where none has a score."""
    known = {k: score for k, score in scores.items() if not isnan(score)}
    if not known:
        raise UsageError("no number of clusters could be tried", "too few heads vary", "use more examples")
    return min(known, key=lambda k: (-known[k], k))


Verdict = Literal["load-bearing", "interfering", "none", "undecided", "invalid"]


@dataclass(frozen=True, eq=False)
class Judgement:
    """What ablation on other examples made of a community.

    Attributes
    ----------
    verdict:
        A name of `circuittest.claims.closure` that holds against every kind of controls after Holm's correction over
        the communities judged; "undecided", or "invalid" where closure could not judge.
    reason:
        Why.
    p, adjusted:
        Name → the largest p over the kinds of controls, and the same after Holm; None where there is none.
    closures:
        Kind of controls → the estimate of closure.
    random:
        Kind of controls → exact rank p among random sets that may share heads with the community; only where closure
        called it load-bearing or interfering. It is part of `p`.
    """

    verdict: Verdict
    reason: str
    p: Mapping[str, float | None]
    adjusted: Mapping[str, float | None]
    closures: Mapping[str, Any] = field(default_factory=dict)
    random: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Community:
    """A set of heads that was proposed.

    Attributes
    ----------
    name:
        C1, C2, … in the order of first members.
    units:
        The heads.
    isolation:
        Mean affinity inside over mean affinity to others, on the examples that proposed it: large by construction.
    isolation_elsewhere:
        The same in the structure of the evaluation examples' signals; None where it is undefined.
    p:
        "kind", "layer", "sink" → how rarely a random set with as many heads, in the same layers, or resting as much on
        the first token, is as isolated elsewhere; None where there is no other such set.
    purity, label:
        Share of the most frequent label among labelled heads, and that label; None without.
    rest:
        Mean attention to the first token.
    unjudged:
        Why closure does not judge it; "" where it does.
    judgement, outside:
        Closure's verdict once there is one; of a community of a stratum, that on the examples outside the stratum, too.
    origin:
        How it was found, for the circuit.
    """

    name: str
    units: tuple[Unit, ...]
    isolation: float | None
    isolation_elsewhere: float | None = None
    p: Mapping[str, float | None] = field(default_factory=dict)
    purity: float | None = None
    label: str | None = None
    rest: float | None = None
    unjudged: str = ""
    judgement: Judgement | None = None
    outside: Judgement | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The judgement's, or "proposed" before there is one."""
        return "proposed" if self.judgement is None else self.judgement.verdict

    @property
    def circuit(self) -> Circuit:
        """The community as a circuit, once closure has found it load-bearing. Raises UsageError before."""
        if self.judgement is None:
            raise UsageError(
                f"community {self.name} is a proposal and no circuit",
                self.unjudged or "closure has not judged it",
                "judge it on other examples (lab.communities), or build a circuit from its units yourself",
            )
        if self.judgement.verdict != "load-bearing":
            raise UsageError(
                f"community {self.name} is {self.judgement.verdict} and no circuit", self.judgement.reason
            )
        return self.candidate()

    def candidate(self) -> Circuit:
        """The units as closure takes them; the origin says that nothing but co-activation proposed them."""
        return Circuit(self.units, name=self.name, origin={**self.origin, "proposal": True})


@dataclass(frozen=True, eq=False)
class Proposal:
    """The communities of a task's examples, and what they were made of.

    Attributes
    ----------
    communities:
        All of them, judged or not; none where the signals show no couplings (`reason` says so).
    structure:
        Affinities on the discovery examples.
    k, scores, chosen:
        Clusters, the score of every k that was tried, and by what it was chosen ("stability", "labels", "given").
    again:
        "ari" and "nmi" of the same clustering of the evaluation examples' signals; None where undefined.
    against_labels:
        "ari" and "nmi" with the labels given, over labelled heads.
    choices:
        Everything that could have changed the result.
    route:
        What is known of the stratum, where the examples are those of one (`circuittest.find.routes`).
    """

    communities: tuple[Community, ...]
    structure: Structure
    k: int | None
    scores: Mapping[int, float] = field(default_factory=dict)
    chosen: str = "given"
    reason: str = ""
    again: Mapping[str, float | None] = field(default_factory=dict)
    against_labels: Mapping[str, float | None] = field(default_factory=dict)
    choices: Mapping[str, Any] = field(default_factory=dict)
    route: Mapping[str, Any] = field(default_factory=dict)

    @property
    def circuits(self) -> tuple[Circuit, ...]:
        """The communities that closure found load-bearing."""
        return tuple(one.circuit for one in self.communities if one.verdict == "load-bearing")

    @property
    def order(self) -> tuple[Unit, ...]:
        """The heads of the structure, community by community."""
        return tuple(unit for community in self.communities for unit in community.units)
