"""A method for every claim of this package; what each estimates is said in its module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from circuittest.lab.proposals import Proposals

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.claims.ioi_algorithm import IOIAlgorithm
    from circuittest.stats import Estimate
    from circuittest.tasks import Partition
    from circuittest.units import Unit


class Claims(Proposals):
    """Every method gives an `Estimate`, to be compared with a threshold."""

    def measure(
        self, claim: str, circuit: Circuit | None = None, *, decide: float | None = None, **options: Any
    ) -> Estimate:
        """The estimate of a claim by its name."""
        raise NotImplementedError

    def reuse(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Cross-fitted reuse@P of a circuit found by `shared`; see `circuittest.claims.reuse`."""
        return self.measure("reuse", circuit, decide=decide, **options)

    def coverage(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Coverage of a given circuit on new examples; see `circuittest.claims.coverage`."""
        return self.measure("coverage", circuit, decide=decide, **options)

    def role(self, circuit: Circuit, *, kind: str, decide: float | None = None, **options: Any) -> Estimate:
        """What a group's heads look at or move; see `circuittest.claims.role`."""
        return self.measure("role", circuit, decide=decide, kind=kind, **options)

    def necessity(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Necessity against C³; see `circuittest.claims.necessity`."""
        return self.measure("necessity", circuit, decide=decide, **options)

    def adversarial_controls(
        self, circuit: Circuit, *, decide: float | None = None, **options: Any
    ) -> Estimate:
        """Damage beyond the most harmful control that is found; see `circuittest.claims.adversarial_controls`."""
        return self.measure("adversarial_controls", circuit, decide=decide, **options)

    def specificity(
        self, circuit: Circuit, *, against: list[str], decide: float | None = None, **options: Any
    ) -> Estimate:
        """Own circuit against other tasks' circuits; see `circuittest.claims.specificity`."""
        return self.measure("specificity", circuit, decide=decide, against=against, **options)

    def closure(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Load-bearing, redundant, interfering or none; see `circuittest.claims.closure`."""
        return self.measure("closure", circuit, decide=decide, **options)

    def graded_necessity(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Necessity in log-probability or logit difference; see `circuittest.claims.graded_necessity`."""
        return self.measure("graded_necessity", circuit, decide=decide, **options)

    def specificity_matrix(
        self, *, tasks: list[str], decide: float | None = None, **options: Any
    ) -> Estimate:
        """Specificity over tasks, and every Δ_A^B; see `circuittest.claims.specificity_matrix`."""
        return self.measure("specificity_matrix", decide=decide, tasks=tasks, **options)

    def selective(
        self, circuit: Circuit, *, against: str, decide: float | None = None, **options: Any
    ) -> Estimate:
        """Ablation of what two circuits share, or do not share; see `circuittest.claims.selective`."""
        return self.measure("selective", circuit, decide=decide, against=against, **options)

    def concentration(self, *, decide: float | None = None, **options: Any) -> Estimate:
        """How few units carry the task; see `circuittest.claims.concentration`."""
        return self.measure("concentration", decide=decide, **options)

    def transfer(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Function of a circuit that was found elsewhere; see `circuittest.claims.transfer`."""
        return self.measure("transfer", circuit, decide=decide, **options)

    def sufficiency(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """What is left when only the circuit is kept; see `circuittest.claims.sufficiency`."""
        return self.measure("sufficiency", circuit, decide=decide, **options)

    def completeness(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Circuit and model under the same knock-outs, the worst of them; see `circuittest.claims.completeness`."""
        return self.measure("completeness", circuit, decide=decide, **options)

    def minimality(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Units that matter more than random additions; see `circuittest.claims.minimality`."""
        return self.measure("minimality", circuit, decide=decide, **options)

    def equivalence(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """How far the kept circuit is from the model; see `circuittest.claims.equivalence`."""
        return self.measure("equivalence", circuit, decide=decide, **options)

    def independence(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Whether the rest still follows the model; see `circuittest.claims.independence`."""
        return self.measure("independence", circuit, decide=decide, **options)

    def path(
        self,
        from_: Circuit | str | Iterable[str | Unit],
        to: Circuit | str | Iterable[str | Unit],
        *,
        slot: Literal["q", "k", "v"] | None = None,
        decide: float | None = None,
        **options: Any,
    ) -> Estimate:
        """Share of an effect that runs directly from one group to another; see `circuittest.claims.path`.

        With `slot` the units of `to` are read there; ids may say it themselves (``"L5.H1.q"``).
        """
        from circuittest.circuit import Circuit
        from circuittest.claims.groups import Group

        sending, reading = (
            Group.of(self.circuit(group) if isinstance(group, Circuit) else group) for group in (from_, to)
        )
        reading = reading if slot is None else reading.at(slot)
        return self.measure("path", decide=decide, from_=sending, to=reading, **options)

    def ioi_algorithm(self, **options: Any) -> IOIAlgorithm:
        """The heads of the IOI algorithm and the shares of their paths; see `circuittest.claims.ioi_algorithm`."""
        from circuittest.claims.ioi_algorithm import ioi_algorithm

        return ioi_algorithm(self, **options)  # type: ignore[arg-type]

    def stability(
        self,
        partition: Partition | str | Sequence[Partition | str],
        *,
        decide: float | None = None,
        **options: Any,
    ) -> Estimate:
        """Similarity of the subtasks' circuits, corrected for noise; see `circuittest.claims.stability`.

        Several partitions are judged by their worst one.
        """
        from circuittest.tasks.partitions import Partition

        one = isinstance(partition, (Partition, str))
        texts: Any = str(partition) if one else [str(p) for p in partition]  # type: ignore[union-attr]
        return self.measure("stability", decide=decide, partition=texts, **options)

    def stability_difference(
        self, partition: Partition | str, *, decide: float | None = None, **options: Any
    ) -> Estimate:
        """Likeness within conditions, less that across or under another; `circuittest.claims.stability_difference`."""
        return self.measure("stability_difference", decide=decide, partition=str(partition), **options)

    def families(
        self, partition: Partition | str, *, alpha: float = 0.6, decide: float | None = None, **options: Any
    ) -> Estimate:
        """Number of families of α-equivalent subtasks; see `circuittest.claims.families`."""
        return self.measure("families", decide=decide, partition=str(partition), alpha=alpha, **options)

    def drift_behaviour(self, *, baseline: str, margin: float, **options: Any) -> Estimate:
        """Change of accuracy or log-probability against a lock; see `circuittest.claims.drift`."""
        return self.measure("drift.behaviour", baseline=baseline, margin=margin, **options)

    def drift_function(self, circuit: Circuit, *, baseline: str, margin: float, **options: Any) -> Estimate:
        """Change of what the circuit does beyond controls against a lock; see `circuittest.claims.drift`."""
        return self.measure("drift.function", circuit, baseline=baseline, margin=margin, **options)

    def drift_structure(self, circuit: Circuit, *, baseline: str, margin: float, **options: Any) -> Estimate:
        """Share of each example's circuit that was replaced since a lock; see `circuittest.claims.drift`."""
        return self.measure("drift.structure", circuit, baseline=baseline, margin=margin, **options)

    def regression(self, circuit: Circuit, *, baseline: str, margin: float, **options: Any) -> Estimate:
        """Kept, moved, spread, weakened or broken since a lock; see `circuittest.claims.regression`."""
        return self.measure("regression", circuit, baseline=baseline, margin=margin, **options)
