"""Estimates, verdicts and the inference behind them. Knows numpy and scipy; no pytest, no torch."""

from circuittest.stats.across import across
from circuittest.stats.betting import ConfidenceSequence
from circuittest.stats.competence import HEADROOM, Competence, competence
from circuittest.stats.equivalence import Equivalence, equivalence
from circuittest.stats.estimate import Estimate
from circuittest.stats.graded import GradedNecessityInference, RatioInference
from circuittest.stats.hierarchical import HierarchicalMeanInference
from circuittest.stats.inference import DRAWS, Inference, Op
from circuittest.stats.labels import Label
from circuittest.stats.listening import (
    announce,
    is_searching,
    listen,
    listen_measured,
    searching,
)
from circuittest.stats.mean import MeanInference
from circuittest.stats.multiplicity import holm
from circuittest.stats.necessity import NecessityInference
from circuittest.stats.paired import PairedDifferenceInference
from circuittest.stats.permutation import PermutationP, mcnemar, paired_swaps, two_groups
from circuittest.stats.proportion import ProportionInference
from circuittest.stats.rank import RankP, rank_p
from circuittest.stats.sequential import Look, SequentialP, besag_clifford, looks
from circuittest.stats.verdict import InvalidClaim, Outcome, Undecided, Verdict

__all__ = [
    "DRAWS",
    "HEADROOM",
    "Competence",
    "ConfidenceSequence",
    "Equivalence",
    "Estimate",
    "GradedNecessityInference",
    "HierarchicalMeanInference",
    "Inference",
    "InvalidClaim",
    "Label",
    "Look",
    "MeanInference",
    "NecessityInference",
    "Op",
    "Outcome",
    "PairedDifferenceInference",
    "PermutationP",
    "ProportionInference",
    "RankP",
    "RatioInference",
    "SequentialP",
    "Undecided",
    "Verdict",
    "across",
    "announce",
    "besag_clifford",
    "competence",
    "equivalence",
    "holm",
    "is_searching",
    "listen",
    "listen_measured",
    "looks",
    "mcnemar",
    "paired_swaps",
    "rank_p",
    "searching",
    "two_groups",
]
