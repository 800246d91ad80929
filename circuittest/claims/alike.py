"""How subtasks are compared: the options that every claim about the similarity of their circuits has, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from circuittest.claims.gates import competent
from circuittest.claims.subtasks import Scores, Subtasks, signed_scores, similarities

if TYPE_CHECKING:
    from circuittest.lab import Lab
    from circuittest.tasks.partitions import Partition

Similarity = Literal["spearman", "pearson", "topk"]
Level = Literal["edges", "units"]


@dataclass(frozen=True)
class Alike:
    """One way to compare; what each option means is said at `circuittest.claims.stability.stability`."""

    similarity: str
    level: str
    universe: str | list[str]
    method: str
    top: str
    n: int | None
    min_size: int
    cuts: int
    replicates: int
    seed: int

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Alike:
        """From the arguments of a claim, by name (``Alike.of(locals())`` before anything else is assigned)."""
        return cls(**{field.name: options[field.name] for field in fields(cls)})

    @property
    def choices(self) -> dict[str, Any]:
        """For the record."""
        return asdict(self)

    @property
    def sampled(self) -> dict[str, Any]:
        """What `circuittest.claims.subtasks.similarities` wants to know, but for the kind of similarity."""
        return {key: getattr(self, key) for key in ("top", "n", "min_size", "cuts", "replicates", "seed")}

    def scores(self, lab: Lab, permutations: int = 0) -> Scores | str:
        """The scores of all examples; or why nothing can be compared: numbers out of range, a model not competent."""
        if reason := self.out_of_range(permutations):
            return reason
        gate = competent(lab, lab.layout.universe("all"), lab.accuracy)
        return signed_scores(lab, self.level, self.universe, self.method) if gate.passed else gate.reason

    def compare(self, scores: Scores, partition: Partition) -> Subtasks | str:
        """The blocks of a partition; or why they cannot be compared."""
        return similarities(scores, partition, self.similarity, **self.sampled)

    def out_of_range(self, permutations: int = 0) -> str:
        """Why the numbers of random draws are of no use, or ""."""
        if self.cuts < 1 or self.replicates < 20 or permutations < 0 or 0 < permutations < 39:
            return (
                f"{self.cuts} cuts, {self.replicates} replicates and {permutations} permutations: at least 1, 20 and "
                "39 (or none) are needed"
            )
        return ""
