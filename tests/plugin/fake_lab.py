"""A pytest plugin for inner runs: labs that measure nothing, so that only the plugin is tested.

``-p fake_lab`` puts a fake in place of `circuittest.lab`. What is measured follows from the claim and the circuit alone:
necessity is 150 of 200, reuse 10 of 200, coverage 65 of 200; an empty circuit is invalid. So `>= 0.3` is supported,
refuted and undecided, in this order. Closure is load-bearing. Each load of a model is a line of ``loads.txt`` in the folder of the run.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from circuittest.circuit import Circuit
from circuittest.errors import LoadError
from circuittest.units import Layout

COUNTS = {"necessity": 150, "reuse": 10, "coverage": 65, "closure": 150}
#: What became of the names of closure: outcome and reason.
LABELS = {
    "load-bearing": ("supported", "three measures agree"),
    "redundant": ("undecided", "no complement was given"),
    "interfering": ("refuted", "it is load-bearing"),
    "none": ("refuted", "it is load-bearing"),
}
#: Stability of a draw: while it is searched for, and when it is judged together with others.
DRAWS = {"good": (150, 150), "bad": (10, 12), "luck": (10, 150), "open": (65, 65), "broken": (0, 0)}


class Lab:
    def __init__(
        self, model: Any, task: Any, *, name: str | None = None, headroom: float = 0.2, **options: Any
    ) -> None:
        self.model, self.task, self.name, self.headroom, self.options = model, task, name, headroom, options
        self.layout = Layout(6, 8, 2)

    def shared(self, **options: Any) -> Circuit:
        return Circuit.of(["L2.H1", "L3.MLP"], name="S_P", layout=self.layout, origin=options)

    def circuit(self, source: Any, *, name: str | None = None) -> Circuit:
        if isinstance(source, Circuit):
            return Circuit(source.units, source.edges, name or source.name, self.layout, source.origin)
        return Circuit.of(source, name=name or "circuit", layout=self.layout)

    def measure(
        self,
        claim: str,
        circuit: Circuit,
        *,
        decide: float | None = None,
        confidence: float | None = None,
        **options: Any,
    ) -> Any:
        from circuittest.stats import Estimate, ProportionInference, announce
        from circuittest.stats.labels import Label

        count = COUNTS[claim]
        estimate = Estimate(
            claim=claim,
            value=count / 200,
            inference=ProportionInference(count, 200),
            n_examples=200,
            n_controls=40 if claim == "necessity" else None,
            circuit=circuit,
            model=self.model.name,
            task=str(self.task),
            examples={"discover": [0, 1], "evaluate": [2, 3]},
            choices={
                "seed": 0,
                "dtype": "float32",
                **options,
                **{key: value for key, value in self.options.items() if key == "budget"},
            },
            decide=decide,
            confidence=confidence or 0.95,
            invalid="" if len(circuit) else "the circuit is empty",
            labels={name: Label(*told) for name, told in LABELS.items()} if claim == "closure" else {},
        )
        announce(estimate)
        return estimate

    def stability(self, partition: str, together: tuple[str, ...] = ()) -> Any:
        from circuittest.stats import Estimate, ProportionInference, announce, is_searching

        draws = DRAWS | ({"good": DRAWS["open"]} if self.task == "unsure" else {})
        searched, judged = draws[partition]
        count = (
            min(draws[name][1] for name in together) if together else searched if is_searching() else judged
        )
        family = lambda drawn: self.stability(partition, tuple({one.choices["partition"] for one in drawn}))
        estimate = Estimate(
            claim="stability",
            value=count / 200,
            inference=ProportionInference(count, 200),
            n_examples=200,
            model=self.model.name,
            task=str(self.task),
            choices={"partition": sorted(together) or partition},
            invalid="its blocks are too small" if partition == "broken" else "",
            together=None if together else family,
        )
        announce(estimate)
        return estimate

    def necessity(self, circuit: Circuit, **options: Any) -> Any:
        return self.measure("necessity", circuit, **options)

    def reuse(self, circuit: Circuit, **options: Any) -> Any:
        return self.measure("reuse", circuit, **options)

    def coverage(self, circuit: Circuit, **options: Any) -> Any:
        return self.measure("coverage", circuit, **options)


def pytest_configure(config: Any) -> None:
    module = ModuleType("circuittest.lab")
    module.Lab = Lab  # type: ignore[attr-defined]
    sys.modules["circuittest.lab"] = module


def pytest_circuittest_load_model(config: Any, model: str, device: str, dtype: str) -> Any:
    with (config.rootpath / "loads.txt").open("a") as file:
        file.write(f"{model} {device} {dtype}\n")
    if model == "broken":
        raise LoadError("broken cannot be loaded", "it is broken", "mend it")
    return SimpleNamespace(name=model, device=device, dtype=dtype)
