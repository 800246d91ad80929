"""Lab itself: measures any registered claim, and gives claims what every estimate records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from circuittest.budget import OverBudget, metered, within_budget
from circuittest.circuit import Circuit
from circuittest.errors import UsageError, did_you_mean
from circuittest.lab.claims import Claims
from circuittest.lab.roles import Roles
from circuittest.progress import claiming
from circuittest.store.watch import watching

if TYPE_CHECKING:
    from circuittest.stats import Estimate, Inference


class Lab(Roles, Claims):
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
    store:
        A `Store`, or the path or URL of one: tables of models that are given by name are looked for there before
        anything runs, and kept there. None: they are kept in this lab only.
    """

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
        seed = options.get("seed", 0)
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise UsageError(f"the seed of {claim} is {seed!r}", "it is a whole number, 0 or more", "use 0")
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
        began = time.perf_counter()
        try:
            with metered(self.budget), claiming(f"{claim} of {self!r}"), watching() as watch:
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
        estimate = replace(estimate, cost=(time.perf_counter() - began, watch.cached))
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
            **({"shots": len(self.data.shots)} if self.data.shots else {}),
            **({"chat": True} if self.data.chat else {}),
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
