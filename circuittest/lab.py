"""Lab: one model and one task, with every measurement made so far. What tests are handed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from circuittest.budget import OverBudget, charge, metered, within_budget
from circuittest.circuit import Circuit, prompt_digest
from circuittest.errors import UsageError, did_you_mean
from circuittest.units import Edge, Layout, Unit

if TYPE_CHECKING:
    from circuittest.models.loaded import LoadedModel
    from circuittest.stats import Estimate, Inference
    from circuittest.tables import OutcomeTable, ScoreTable
    from circuittest.tasks import Partition, Task, TaskData

Split = Literal["discover", "evaluate"]
Level = Literal["units", "edges"]
ACCURACIES = ("argmax", "candidates")
METRICS = ("log_prob", "logit_diff", "prob_diff", "kl")
#: Scores in another dtype are compared with the model's own on so many examples, and below this overlap of their
#: circuits a warning is given.
AGREEMENT_EXAMPLES, AGREEMENT = 8, 0.8

log = logging.getLogger(__name__)


class Lab:
    """A model and a task; measures circuits and gives estimates to compare with thresholds.

    Nothing is loaded before it is needed, and every table is measured once.

    Parameters
    ----------
    model:
        ``"zoo:gqa"``, a hub id, a directory, a GGUF file, a Hugging Face module in memory, or a `LoadedModel`.
    task:
        A task's name, the path of a ``.jsonl`` or ``.csv`` file, a `Task`, a list of examples as mappings, or
        `TaskData` that is already in token ids.
    tokenizer:
        For a module in memory; it is never changed.
    discover, evaluate, seed:
        How many examples choose circuits and how many judge them (disjoint), and the seed of their stream.
    prefix:
        What stands before every prompt: ``"auto"``, ``"bos"``, ``"none"`` or a token.
    accuracy:
        ``"argmax"`` or ``"candidates"``; by default the task's.
    metric:
        What attribution differentiates: ``"log_prob"``, ``"logit_diff"``, ``"prob_diff"`` or ``"kl"``; by default the
        task's.
    answers:
        ``"first"`` scores the first token of an answer, ``"whole"`` all of them; see `circuittest.tasks.prepare`.
    headroom:
        How far above the floor the model's accuracy must be before its behaviour is judged.
    budget:
        How many forwards one claim may ask for (`circuittest.budget`); beyond it is undecided. None: no limit.
    """

    def __init__(
        self,
        model: Any,
        task: str | Task | TaskData | Sequence[Mapping[str, Any]],
        *,
        tokenizer: Any = None,
        name: str | None = None,
        discover: int = 200,
        evaluate: int = 200,
        seed: int = 0,
        prefix: str = "auto",
        device: str = "auto",
        dtype: str = "float32",
        accuracy: str | None = None,
        metric: str | None = None,
        answers: str = "first",
        headroom: float = 0.2,
        budget: int | None = None,
    ) -> None:
        for value, known, what in ((accuracy, ACCURACIES, "accuracy"), (metric, METRICS, "metric")):
            if value is not None and value not in known:
                raise UsageError(f"unknown {what} {value!r}", "", did_you_mean(str(value), known))
        if not 0 <= headroom < 1:
            raise UsageError(f"headroom is {headroom!r}", "it is a difference of accuracies", "use 0.2")
        self._model, self._tokenizer, self._name = model, tokenizer, name
        self._task = task
        self._sizes = {"discover": discover, "evaluate": evaluate, "seed": seed}
        self._prefix, self._device, self._dtype = prefix, device, dtype
        self._accuracy, self._metric, self._answers = accuracy, metric, answers
        if budget is not None and budget < 1:
            raise UsageError(f"budget is {budget!r}", "it counts forwards", "use a positive number, or None")
        self.headroom, self.budget = headroom, budget
        self._others: dict[str, Lab] = {}
        self._scores: dict[tuple[Any, ...], ScoreTable] = {}
        self._copies: dict[str, LoadedModel] = {}
        self._outcomes: dict[tuple[str, str, str, tuple[tuple[Unit, ...], ...]], OutcomeTable] = {}
        self._patched: dict[tuple[Any, ...], OutcomeTable] = {}

    # What is measured -------------------------------------------------------------------------------------------

    @cached_property
    def model(self) -> LoadedModel:
        """The model, loaded and checked (`circuittest.models.preflight`). Raises LoadError or UnsupportedModel."""
        from circuittest.models.loaded import LoadedModel
        from circuittest.models.loading import from_module, load_model
        from circuittest.models.preflight import require

        if isinstance(self._model, LoadedModel):
            model = self._model
        elif isinstance(self._model, (str, Path)):
            model = load_model(
                str(self._model), tokenizer=self._tokenizer, device=self._device, dtype=self._dtype
            )
        else:
            model = from_module(self._model, self._tokenizer, self._name or "in-memory")
        require(model.checks)
        return model

    @cached_property
    def data(self) -> TaskData:
        """The examples as this model sees them. Raises TaskError."""
        from circuittest.tasks import TaskData, prepare

        if isinstance(self._task, TaskData):
            return self._task
        return prepare(
            self._task, self.model.tokenizer, prefix=self._prefix, answers=self._answers, **self._sizes
        )

    @property
    def layout(self) -> Layout:
        """The units of the model."""
        return self.model.layout

    @property
    def fingerprint(self) -> str:
        """Hash of the model's configuration and weights."""
        return self.model.fingerprint

    @property
    def accuracy(self) -> str:
        """How an example counts as correct."""
        return self._accuracy or self.data.accuracy

    @property
    def metric(self) -> str:
        """What attribution differentiates."""
        return self._metric or self.data.metric

    def on(self, task: str | Task) -> Lab:
        """The lab of another task on the same model, with the same sizes, seed and prefix; each is made once."""
        key = task if isinstance(task, str) else task.name
        if key not in self._others:
            self._others[key] = Lab(
                self.model,
                task,
                name=self._name,
                discover=self._sizes["discover"],
                evaluate=self._sizes["evaluate"],
                seed=self._sizes["seed"],
                prefix=self._prefix,
                answers=self._answers,
                headroom=self.headroom,
            )
        return self._others[key]

    def on_text(self, path: str | Path) -> Lab:
        """The lab of running text on the same model: predict the true next token (`circuittest.tasks.text`)."""
        from circuittest.tasks.text import text_data

        key = f"text {path}"
        if key not in self._others:
            data = text_data(path, self.model.tokenizer, prefix=self._prefix)
            self._others[key] = Lab(self.model, data, name=self._name, prefix=self._prefix)
        return self._others[key]

    def where(self, predicate: str) -> Lab:
        """The lab of a subtask: the examples for which a predicate on their features holds (``template == 0``).

        Raises UsageError and TaskError; see `circuittest.tasks.subtask`.
        """
        from circuittest.tasks.subtask import restricted

        key = f"where {predicate}"
        if key not in self._others:
            data = restricted(self.data, predicate)
            sizes: dict[str, Any] = {**self._sizes, "prefix": self._prefix}
            how: dict[str, Any] = {
                "accuracy": self.accuracy,
                "metric": self.metric,
                "headroom": self.headroom,
            }
            self._others[key] = Lab(self.model, data, name=self._name, **sizes, **how)
        return self._others[key]

    def untrained(self, seed: int = 0) -> Lab:
        """The lab of an untrained twin of the model (same configuration, fresh weights) on the same examples.

        Raises UnsupportedModel where there can be none.
        """
        from circuittest.models.untrained import untrained_twin

        key = f"untrained {seed}"
        if key not in self._others:
            twin = untrained_twin(self.model, seed)
            self._others[key] = Lab(
                twin, self.data, accuracy=self.accuracy, metric=self.metric, headroom=self.headroom
            )
        return self._others[key]

    def __repr__(self) -> str:
        model = self._name or (self._model if isinstance(self._model, (str, Path)) else "in-memory")
        task = Path(self._task).name if isinstance(self._task, str) else getattr(self._task, "name", "task")
        return f"Lab({model}, {task})"

    # Tables -----------------------------------------------------------------------------------------------------

    def scores(
        self,
        split: Split = "discover",
        *,
        universe: str | Iterable[str] = "heads",
        score: str = "edge-abs-sum",
        method: str = "eap",
        steps: int = 5,
        baseline: str = "counterfactual",
        level: Level = "units",
        dtype: str | None = None,
    ) -> ScoreTable:
        """Attribution of every unit or edge of a universe on every example of a split, [examples × members].

        `method`, `steps` and `baseline` are those of `circuittest.measure.attribution.attribute`. The means of the
        baseline "mean" never come from the examples that are scored: for evaluation examples they are those of the
        discovery examples, and within those every second example is scored by the mean of the others. With
        `dtype` ("bfloat16") they are made on a copy of the model in that dtype, which is faster and less exact.

        The columns are cut from one table of the kinds involved, so that a claim about heads and one about all
        units cost one attribution. With ``level="edges"`` the members are the edges of the universe
        (`circuittest.find.induced.edge_universe`), signed, and `score` is not used.
        """
        from circuittest.find.induced import edge_universe

        for value, known, what in (
            (split, ("discover", "evaluate"), "split"),
            (level, ("units", "edges"), "level"),
        ):
            if value not in known:
                raise UsageError(f"unknown {what} {value!r}", "", did_you_mean(str(value), known))
        members = edge_universe(self.layout, universe) if level == "edges" else self.layout.universe(universe)
        how: dict[str, Any] = {"level": level}
        if level == "units":
            own = {unit.kind for unit in self.layout.universe(universe)}
            how["kinds"] = tuple(sorted(own if method == "exact" else own | {"head", "mlp"}))
            how |= {} if method == "exact" else {"unit_score": score}
        path = steps if method == "eap-ig" else 0
        # two forwards, and a backward for each point of the path beside a forward of its own
        charge((2 + 2 * max(1, path) + path) * len(getattr(self.data, split)))
        key = (split, method, path, baseline, dtype, self.metric, *sorted(how.items()))
        if key not in self._scores:
            self._scores[key] = self._attribute(
                self._in(dtype),
                split,
                metric=self.metric,
                method=method,
                steps=steps,
                baseline=baseline,
                **how,
            )
        table = self._scores[key]
        return table if len(members) == len(table.members) else table.columns(members)

    def _in(self, dtype: str | None) -> LoadedModel:
        """The model, or its copy in another dtype; each is made and checked once."""
        from circuittest.models.preflight import require
        from circuittest.models.screening import in_dtype

        if dtype is None:
            return self.model
        if dtype not in self._copies:
            self._copies[dtype] = in_dtype(self.model, dtype)
            require(self._copies[dtype].checks)
        return self._copies[dtype]

    def _attribute(self, model: LoadedModel, split: Split, *, baseline: str, **how: Any) -> ScoreTable:
        from circuittest.measure.attribution import attribute

        items = getattr(self.data, split)
        if not items:
            raise UsageError(f"the split {split!r} has no examples", "", f"ask for {split}=200")
        if baseline != "mean":
            return attribute(model, items, baseline=baseline, **how)
        if split == "evaluate":
            return attribute(model, items, baseline=baseline, calibration=self.data.discover, **how)
        if len(items) < 2:
            raise UsageError(
                "the baseline 'mean' scores one half of the discovery examples by the mean of the other half",
                f"there is {len(items)} example",
                "ask for discover=200",
            )
        even, odd = (
            attribute(model, items[i::2], baseline=baseline, calibration=items[1 - i :: 2], **how)
            for i in (0, 1)
        )
        return even.interleaved(odd)

    def outcomes(
        self,
        sets: Sequence[Iterable[Unit]],
        *,
        value: str = "zero",
        positions: str = "all",
        split: Split = "evaluate",
    ) -> OutcomeTable:
        """What the model does on the examples of a split with each set of units ablated.

        `value` and `positions` are those of `circuittest.measure.ablation.ablate`; means and resampled values come
        from the discovery examples, and so are refused on these.

        A row depends on the sets asked for in the same call (they share batches), so results are remembered per
        call: whatever else a session measures, the same claim gives the same bytes.
        """
        from circuittest.measure.ablation import ablate

        named = tuple(tuple(sorted(set(units))) for units in sets)
        charge(len(named) * len(getattr(self.data, split, ())))
        key = (split, value, positions, named)
        if key not in self._outcomes:
            if split not in ("discover", "evaluate"):
                raise UsageError(
                    f"unknown split {split!r}", "", did_you_mean(str(split), ("discover", "evaluate"))
                )
            items = getattr(self.data, split)
            if not items:
                raise UsageError(f"the split {split!r} has no examples", "", f"ask for {split}=200")
            self._outcomes[key] = ablate(
                self.model,
                items,
                named,
                value=value,
                positions=positions,
                calibration=self.data.discover if split == "evaluate" else (),
            )
        return self._outcomes[key]

    def patched(
        self,
        circuits: Sequence[Circuit | Iterable[Unit | Edge]],
        *,
        keep: bool,
        value: str = "counterfactual",
        level: Literal["edges", "units"] = "edges",
        split: Split = "evaluate",
    ) -> OutcomeTable:
        """What the model does on the examples of a split with only each circuit kept, or with each knocked out.

        `keep`, `value` and `level` are those of `circuittest.measure.patching.patch`; means come from the discovery
        examples, and so are refused on these. Remembered per call, as `outcomes`.
        """
        from circuittest.measure.patching import patch

        here = lambda circuit: self.circuit(circuit) if isinstance(circuit, Circuit) else circuit
        named = tuple(tuple(here(circuit)) for circuit in circuits)
        charge(len(named) * len(getattr(self.data, split, ())))
        key = (split, keep, value, level, named)
        if key not in self._patched:
            if split not in ("discover", "evaluate"):
                raise UsageError(
                    f"unknown split {split!r}", "", did_you_mean(str(split), ("discover", "evaluate"))
                )
            items = getattr(self.data, split)
            if not items:
                raise UsageError(f"the split {split!r} has no examples", "", f"ask for {split}=200")
            self._patched[key] = patch(
                self.model,
                items,
                named,
                keep=keep,
                value=value,
                level=level,
                calibration=self.data.discover if split == "evaluate" else (),
            )
        return self._patched[key]

    # Circuits ---------------------------------------------------------------------------------------------------

    def shared(
        self,
        *,
        top: str | int | float = "20%",
        at: str | int | float = 95,
        universe: str | list[str] = "heads",
        score: str = "edge-abs-sum",
        method: str = "eap",
        steps: int = 5,
        baseline: str = "counterfactual",
        level: Level = "units",
        dtype: str | None = None,
        name: str = "S_P",
    ) -> Circuit:
        """S_P: the units in at least `at` % of the per-example circuits of the `top` % highest-scoring units.

        Li & Subramani, arXiv 2605.08348, Eq. 1. With ``level="edges"`` edges are ranked, by the size of their
        scores, and S_P is a circuit of edges. The set may be empty, which is ordinary: claims on it are invalid
        and say the largest P that gives a set. What the scores are is said as in `scores`; the origin keeps it
        (`circuittest.find.recipe`). With ``dtype="bfloat16"`` units are ranked on a copy of the model in that dtype;
        how far the ranking agrees with the model's own on a few examples stands beside it in the origin, and claims
        are judged on the model itself.

        Raises
        ------
        UsageError
            When `top` or `at` is no percentage in range.
        UnitError
            When the universe is unknown or this architecture has none of its units.
        """
        from circuittest.find.ranking import per_example, percent
        from circuittest.find.shared import share_of_examples, shared_members, why_empty

        top, at = f"{float(percent(top, 'top')):g}%", f"{float(share_of_examples(at)):g}%"
        how: dict[str, Any] = {"method": method, "score": score, "baseline": baseline, "level": level}
        if dtype is not None:
            how["dtype"] = dtype
        table = self.scores("discover", universe=universe, steps=steps, **how)
        membership = per_example(table, top)
        members = shared_members(membership, at)
        origin: dict[str, Any] = {
            **how,
            "metric": self.metric,
            "score": "exact" if method == "exact" else score if level == "units" else "edge",
            "universe": universe,
            "top": top,
            "at": at,
            "k": membership.k,
            "ties": membership.ties,
            "model": self.model.name,
            "fingerprint": self.fingerprint,
            "task": self.data.task,
            "seed": self.data.seed,
            "examples": list(membership.examples),
            "prompts": [prompt_digest(item.prompt_ids) for item in self.data.discover],
        }
        if method == "eap-ig":
            origin["steps"] = steps
        if dtype is not None:
            origin["agreement"] = self._agreement(table, top, universe=universe, steps=steps, **how)
        if not members:
            origin["empty"] = why_empty(membership, at)
        return Circuit.of(members, name=name, layout=self.layout, origin=origin)

    def _agreement(self, table: ScoreTable, top: str, **how: Any) -> dict[str, float]:
        """How a ranking in another dtype agrees with the model's own, on the first discovery examples."""
        from circuittest.find.agreement import agreement

        few = self.data.discover[:AGREEMENT_EXAMPLES]
        data = replace(self.data, discover=few, evaluate=())
        own = Lab(self.model, data, accuracy=self.accuracy, metric=self.metric)
        exact = own.scores("discover", **{**how, "dtype": None})
        found = agreement(table.rows(range(len(few))), exact, top)
        if found.overlap < AGREEMENT:
            log.warning(
                "%s: circuits ranked in %s agree with the model's own to %.0f %% on %d examples; rank in the model's "
                "dtype where that is too little",
                self,
                how["dtype"],
                100 * found.overlap,
                found.examples,
            )
        return asdict(found)

    def circuit(
        self, source: Circuit | str | Path | Iterable[str | Unit], *, name: str | None = None
    ) -> Circuit:
        """A circuit from a file, from ids, or from another lab, checked against this model's layout.

        Raises
        ------
        CircuitError
            For a file that cannot be read and for a circuit of another architecture.
        UnitError
            For an id that this model does not have.
        """
        if isinstance(source, (str, Path)):
            source = Circuit.load(source)
        if isinstance(source, Circuit):
            if source.layout is not None and source.layout != self.layout:
                from circuittest.errors import CircuitError

                raise CircuitError(
                    f"the circuit {source.name} belongs to another architecture",
                    f"{source.layout.describe()}; here {self.layout.describe()}",
                    "find the circuit on this model",
                )
            return Circuit(source.units, source.edges, name or source.name, self.layout, source.origin)
        return Circuit.of(source, name=name or "circuit", layout=self.layout)

    # Claims -----------------------------------------------------------------------------------------------------

    def reuse(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Cross-fitted reuse@P of a circuit found by `shared`; see `circuittest.claims.reuse`."""
        return self.measure("reuse", circuit, decide=decide, **options)

    def coverage(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Coverage of a given circuit on new examples; see `circuittest.claims.coverage`."""
        return self.measure("coverage", circuit, decide=decide, **options)

    def necessity(self, circuit: Circuit, *, decide: float | None = None, **options: Any) -> Estimate:
        """Necessity against C³; see `circuittest.claims.necessity`."""
        return self.measure("necessity", circuit, decide=decide, **options)

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

    def families(
        self, partition: Partition | str, *, alpha: float = 0.6, decide: float | None = None, **options: Any
    ) -> Estimate:
        """Number of families of α-equivalent subtasks; see `circuittest.claims.families`."""
        return self.measure("families", decide=decide, partition=str(partition), alpha=alpha, **options)

    def measure(
        self,
        claim: str,
        circuit: Circuit | None = None,
        *,
        decide: float | None = None,
        confidence: float | None = None,
        **options: Any,
    ) -> Estimate:
        """The estimate of any registered claim.

        Parameters
        ----------
        circuit:
            What the claim is about; None for claims about the task as a whole.
        decide:
            The only threshold that the estimate will be compared with, where it is known beforehand. Claims that
            can then measure only as much as decides it.
        confidence:
            Two-sided, of the interval that decides; 0.95 if not given.

        Raises
        ------
        UsageError
            For an unknown claim or option, a missing circuit, and one that the claim has no use for.
        """
        from circuittest.claims import claim_kind
        from circuittest.stats import announce

        kind = claim_kind(claim)
        for option in options:
            if option not in kind.options:
                raise UsageError(f"{claim} has no option {option!r}", "", did_you_mean(option, kind.options))
        if kind.takes_circuit != (circuit is not None):
            what = "needs a circuit" if kind.takes_circuit else "takes no circuit"
            raise UsageError(
                f"{claim} {what}", "it is about " + ("one" if kind.takes_circuit else "the task")
            )
        about = () if circuit is None else (self.circuit(circuit),)
        known = {"decide": decide, "confidence": confidence}
        given = {name: float(value) for name, value in known.items() if value is not None}
        early = {name: value for name, value in given.items() if name in kind.reserved}
        estimate: Estimate
        try:
            with metered(self.budget):
                estimate = kind.function(self, *about, **options, **early)
        except OverBudget as error:
            if within_budget():  # the budget is that of the claim which measures this one
                raise
            reason = f"{error.what}: {error.why}"
            estimate = self.estimate(claim, next(iter(about), None), undecided=reason, hints=(error.do,))
        if decide is not None:
            estimate = replace(estimate, decide=float(decide))
        if confidence is not None:
            estimate = replace(estimate, confidence=confidence)
        announce(estimate)
        return estimate

    def estimate(
        self,
        claim: str,
        circuit: Circuit | None,
        *,
        inference: Inference | None = None,
        n_examples: int | None = None,
        choices: Mapping[str, Any] | None = None,
        details: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Estimate:
        """For authors of claims: an Estimate with everything filled in that this lab knows."""
        from circuittest.stats import Estimate

        own = {"interval": inference.method} if inference is not None else {}
        return Estimate(
            claim=claim,
            value=None if inference is None else inference.value,
            inference=inference,
            n_examples=len(self.data.evaluate) if n_examples is None else n_examples,
            circuit=circuit,
            model=self.model.name,
            fingerprint=self.fingerprint,
            task=self.data.task,
            examples={
                "discover": list(circuit.origin.get("examples", ())) if circuit is not None else [],
                "evaluate": [item.index for item in self.data.evaluate],
            },
            choices={**self._choices(), **own, **(choices or {})},
            details=details or {},
            **more,
        )

    def _choices(self) -> dict[str, Any]:
        import torch

        return {
            "task_variant": self.data.variant,
            **({"task_digest": self.data.digest} if self.data.digest else {}),
            "pool": self.data.pool,
            "prefix": self.data.prefix_name,
            "answers": self.data.answers,
            "data_seed": self.data.seed,
            "discover": len(self.data.discover),
            "evaluate": len(self.data.evaluate),
            "dropped": dict(self.data.dropped),
            "metric": self.metric,
            "accuracy": self.accuracy,
            "headroom": self.headroom,
            **({} if self.budget is None else {"budget": self.budget}),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": self.model.device.type,
            "threads": torch.get_num_threads(),
        }
