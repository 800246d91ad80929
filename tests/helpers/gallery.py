"""Records that between them show everything that the page can draw, with numbers as they come."""

from __future__ import annotations

from typing import Any

import numpy as np

from circuittest.circuit import Circuit
from circuittest.report.records import Record, record
from circuittest.stats import Estimate, MeanInference

CIRCUIT = Circuit.of(["L0.H2", "L0.H5", "L2.H1", "L4.H5", "L5.MLP"], name="S_P")
EXAMPLES = [
    {
        "index": 231 + i,
        "prompt": prompt,
        "answers": [answer],
        "pull": -0.31 + 0.07 * i,
        "before": [[answer, 0.9312], [" the", 0.0401], [" her", 0.0102]],
        "after": [[answer, 0.4489], [" Luke", 0.0802], [" Carl", 0.0714]],
    }
    for i, (prompt, answer) in enumerate(
        [
            ("Today Ruth and Henry met at the market. Later Ruth passed a broken gift to", " Henry"),
            ("…" + "Then, after a very long and winding story, " * 4 + "Max gave a book to", " Dan"),
            ("Then Diana and David met, and Diana passed <b>a small ball</b> to", " David"),
        ]
    )
]


def gallery() -> list[Record]:
    """The records, sorted by nothing."""
    return [*_about_the_circuit(), *_about_tasks(), *_about_models(), *_undecidable()]


def made(
    claim: str,
    value: float,
    details: dict[str, Any],
    *,
    id: str | None = None,
    at: float | None = 0.3,
    n: int = 200,
    spread: float = 0.45,
    **more: Any,
) -> Record:
    rng = np.random.default_rng(len(claim))
    values = rng.normal(0.0, spread, n)
    inference = MeanInference(values - values.mean() + value, bounds=None)
    given = {
        "model": "zoo:gqa",
        "task": "ioi",
        "circuit": CIRCUIT,
        "n_examples": n,
        "details": details,
    } | more
    given["choices"] = {"seed": 0, "ablation": "zero", "universe": ["head", "mlp"], **more.get("choices", {})}
    estimate = Estimate(claim=claim, value=value, inference=inference, **given)
    measured: Any = estimate if at is None else estimate >= at
    outcome = getattr(measured, "outcome", "supported")
    passed = "passed" if outcome == "supported" else "failed"
    return record(measured, id=id or f"suites/ioi.circuit.yaml::{claim}", outcome=passed)


def _about_the_circuit() -> list[Record]:
    rng = np.random.default_rng(0)
    accuracies = [float(a) for a in np.clip(rng.normal(0.8, 0.12, 40), 0, 1)]
    controls = [["L1.H1", "L1.H7", "L3.H2", "L3.H3", "L4.MLP"]] * 40
    driven = {
        "driving": lambda op, threshold: {
            "control": "40 random sets of as many units: accuracy 0.44 to 1.00, mean 0.81; the most harmful leaves 0.44: L1.H1",
            "examples": EXAMPLES,
        }
    }
    part = lambda shift: {"effect": 2.0 + shift, "controls": [float(x) for x in rng.normal(0.3, 0.5, 47)]}
    units = {
        str(unit): {"effect": 0.1 + 0.3 * i, "signed": 0.1, "exceeds": 0.4 + 0.1 * i}
        for i, unit in enumerate(CIRCUIT.units)
    }
    references = {
        "head": {"effects": [float(x) for x in abs(rng.normal(0.1, 0.2, 20))]},
        "mlp": {"effects": [0.4, 0.9]},
    }
    return [
        made("necessity", 0.74, {"acc_base": 0.98, "acc_circuit": 0.07, "acc_controls": accuracies, "controls": controls},
             n_controls=40),
        made("necessity", 0.24, {"acc_base": 0.98, "acc_circuit": 0.57, "acc_controls": accuracies}, n_controls=40,
             id="suites/ioi.circuit.yaml::necessity[name_movers]", at=0.5, **driven),
        made("reuse", 0.56, {"curve": {str(p): 1.0 - p / 160 for p in range(50, 101, 5)}, "chance": 0.1}, spread=0.1,
             choices={"at": "95%"}),
        made("closure", 2.1, {"log_prob": part(0.0), "logit_diff": part(0.5), "argmax": part(-1.5)}, n_controls=47, at=1.0),
        made("sufficiency", 0.83, {
            "controls": {"sufficiency": [float(x) for x in rng.normal(0.2, 0.15, 30)]},
            "curve": {"units": [1, 2, 5, 10, 24], "of": 54, "sufficiency": [0.0, 0.21, 0.83, 0.97, 1.04]},
        }, at=0.7),
        made("minimality", 0.8, {"units": units, "references": references}, at=0.95, spread=0.3,
             choices={"metric": "logit_diff"}),
        made("coverage", 0.6, {"frequency": {f"L{i}.H{j}": float(rng.random()) for i in range(6) for j in range(8)}}, at=None),
    ]  # fmt: skip


def _about_tasks() -> list[Record]:
    tasks = ["ioi", "sva", "gendered_pronoun", "greater_than"]
    rng = np.random.default_rng(1)
    cell = lambda value: {"value": value, "interval": [value - 0.1, value + 0.1]}
    drops = {a: {b: cell(float(0.8 if a == b else rng.normal(0.05, 0.1))) for b in tasks} for a in tasks}
    names = [f"template == {i}" for i in range(6)]
    similar = np.clip(np.eye(6) + rng.normal(0.6, 0.1, (6, 6)), -1, 1)
    similar[:3, 3:] -= 0.5
    similar[3:, :3] -= 0.5
    matrix = ((similar + similar.T) / 2).tolist()
    families = [{"subtasks": names[:3]}, {"subtasks": names[3:]}]
    effects = {f"L{i}.H{j}": float(rng.normal(0.02, 0.08)) for i in range(6) for j in range(8)}
    random = {str(k): np.clip(rng.normal(k / 16, 0.12, 20), -0.1, 1.2).tolist() for k in range(1, 9)}
    return [
        made("specificity_matrix", 0.7, {"drops": drops}, circuit=None),
        made("specificity", 0.5, {"drops": {"own": 0.8, "others": {"sva": 0.1, "facts": -0.04}}}),
        made("families", 2.0, {"subtasks": names, "similarity": matrix, "families": families}, circuit=None, at=1.5),
        made("concentration", 6.0, {
            "effects": effects, "units_to": {"number": 6}, "damage": {str(k): min(1.0, 0.16 * k) for k in range(1, 9)},
            "random_orders": {"damage": random},
        }, circuit=None, at=9.0, choices={"damage": 0.8}),
    ]  # fmt: skip


def _about_models() -> list[Record]:
    steps = [0, 200, 400, 800, 1600, 3200]
    found = [
        made("necessity", 0.75 / (1 + np.exp((900 - step) / 250)), {}, at=0.3, n_controls=40,
             model=f"zoo:gqa@step{step}", id=f"suites/series.circuit.yaml::necessity[zoo:gqa@step{step}]")
        for step in steps
    ]  # fmt: skip
    details = {"acc_base": 0.98, "acc_tuned": 0.97, "beyond_base": 0.71, "beyond_tuned": 0.2}
    return [*found, made("regression", -0.01, details, at=-0.1, label="moved", spread=0.2)]


def _undecidable() -> list[Record]:
    broken = Estimate(
        claim="reuse", value=None, invalid="the circuit was not found by lab.shared", circuit=CIRCUIT,
        model="zoo:mha", task="sva",
    )  # fmt: skip
    close = made("necessity", 0.3, {}, n=30, id="tests/test_sva.py::test_movers[zoo:mha-sva]::necessity#1", model="zoo:mha",
                 task="sva")  # fmt: skip
    return [
        record(broken >= 0.5, id="tests/test_sva.py::test_reuse[zoo:mha-sva]::reuse#1", outcome="failed"),
        close,
    ]
