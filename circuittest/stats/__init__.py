"""Estimates, verdicts and the inference behind them. Knows numpy and scipy; no pytest, no torch."""

from circuittest.stats.competence import HEADROOM, Competence, competence
from circuittest.stats.estimate import Estimate
from circuittest.stats.graded import GradedNecessityInference, RatioInference
from circuittest.stats.inference import DRAWS, Inference, Op
from circuittest.stats.listening import announce, listen, listen_measured
from circuittest.stats.mean import MeanInference
from circuittest.stats.multiplicity import holm
from circuittest.stats.necessity import NecessityInference
from circuittest.stats.paired import PairedDifferenceInference
from circuittest.stats.proportion import ProportionInference
from circuittest.stats.rank import RankP, rank_p
from circuittest.stats.verdict import InvalidClaim, Outcome, Undecided, Verdict

__all__ = [
    "DRAWS",
    "HEADROOM",
    "Competence",
    "Estimate",
    "GradedNecessityInference",
    "Inference",
    "InvalidClaim",
    "MeanInference",
    "NecessityInference",
    "Op",
    "Outcome",
    "PairedDifferenceInference",
    "ProportionInference",
    "RankP",
    "RatioInference",
    "Undecided",
    "Verdict",
    "announce",
    "competence",
    "holm",
    "listen",
    "listen_measured",
    "rank_p",
]
