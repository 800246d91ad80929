"""``circuittest doctor``: can claims about this model be trusted at all?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from circuittest.commands import common

if TYPE_CHECKING:
    from circuittest.lab import Lab


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("doctor", help="check that a model can be measured, and that it does a task")
    common.add_model(parser)
    parser.add_argument("--task", help="also check that the model does this task")
    common.add_data(parser, discover=0, evaluate=200)
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print every check. Exit code 0 when all pass, 1 when one fails, 2 when the model cannot be loaded."""
    from circuittest.models.loading import load_model
    from circuittest.models.preflight import preflight

    model = load_model(arguments.model, device=arguments.device, dtype=arguments.dtype)
    checks = [
        {"name": check.name, "passed": bool(check.passed), "detail": check.detail}
        for check in preflight(model)
    ]
    if arguments.task is not None:
        arguments.model = model
        checks.append(competence(common.lab_of(arguments)))
    passed = all(check["passed"] for check in checks)
    facts = {
        "name": model.name,
        "fingerprint": model.fingerprint,
        "model_type": getattr(model.module.config, "model_type", ""),
        "layout": model.layout.to_dict(),
        "mixtures": list(model.mixtures),  # layers whose MLP is a mixture of experts
        "quantised": model.quantised,
    }
    if arguments.json is not None:
        payload = {"model": facts, "checks": checks, "passed": passed}
        common.emit(arguments.json, payload, common.environment_of(model))
    if arguments.json != "-":
        common.say(f"{model.name} ({facts['model_type']}): {model.layout.describe()}")
        rows = [
            ["ok" if check["passed"] else "FAILED", str(check["name"]), str(check["detail"])]
            for check in checks
        ]
        common.say(common.table(["", "check", "detail"], rows))
        common.say("all checks passed" if passed else "claims cannot be judged before this is mended")
    return 0 if passed else 1


def competence(lab: Lab) -> dict[str, Any]:
    """The competence gate of claims, as a check."""
    from circuittest.claims.gates import competent

    gate = competent(lab, lab.layout.universe("all"), lab.accuracy)
    detail = (
        f"{lab.data.task}: accuracy {gate.accuracy:.3f} ({lab.accuracy}) on {gate.n} examples; "
        f"floor {gate.floor:.3f} ({gate.floor_name})"
    )
    return {"name": "competence", "passed": bool(gate.passed), "detail": gate.reason or detail}
