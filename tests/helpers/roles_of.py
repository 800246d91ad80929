"""Roles of a real model's heads on repeated lists and on IOI, and what closure makes of them, as JSON.

``python -m tests.helpers.roles_of smollm2 [--controls 45]`` prints what docs/roles.md shows. Induction heads are
also compared with sets of the same layers, which is the harder test.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from circuittest.circuit import Circuit, prompt_digest
from circuittest.find.roles.kinds import COPYING, PATTERNS
from circuittest.lab import Lab
from circuittest.models import load_model
from circuittest.units import Unit
from tests.helpers.real import PREFIXES, file_of

LEAST = 0.4
#: Control sets where closure's label is out of reach: of the same layers, which leave too few (up to 500 are all
#: taken); and on IOI, where accuracy is so near to its floor that so many examples are needed to judge anything.
FEW_SETS, IOI_EXAMPLES = 20, 40
SHOWN = 6


def top(means: dict[Unit, float], count: int = SHOWN) -> dict[str, float]:
    order = sorted(means, key=lambda head: (-means[head], head.order))[:count]
    return {str(head): round(means[head], 3) for head in order}


def closed(lab: Lab, circuit: Circuit, controls: int, **how: Any) -> dict[str, Any]:
    """Closure, and the damage in each measure beside that of the controls."""
    found = lab.closure(circuit, controls=controls, **how)
    damage = {
        name: {"circuit": part["effect"], "controls": part["controls"], "p": part["p"]}
        for name, part in found.details.items()
        if isinstance(part, dict) and "effect" in part and "controls" in part
    }
    return {
        "units": [str(unit) for unit in circuit.units],
        "label": found.label,
        "invalid": found.invalid,
        "why": {name: label.reason for name, label in found.labels.items() if not found.invalid},
        "accuracy": found.details.get("acc_base"),
        "n_controls": found.n_controls,
        "beyond": [found.value, *(found.interval or ())],
        "damage": damage,
    }


def chosen(lab: Lab, units: list[Unit], name: str) -> Circuit:
    prompts = [prompt_digest(item.prompt_ids) for item in lab.data.discover]
    return Circuit.of(units, name=name, layout=lab.layout, origin={"method": "roles", "prompts": prompts})


def measured(name: str, discover: int, evaluate: int, controls: int) -> dict[str, Any]:
    model = load_model(str(file_of(name)))
    sizes: dict[str, Any] = {"discover": discover, "evaluate": evaluate, "prefix": PREFIXES[name]}
    lists = Lab(model, "induction", **sizes)
    ioi = Lab(model, "ioi", **{**sizes, "evaluate": max(evaluate, IOI_EXAMPLES)})
    found: dict[str, Any] = {"scores": {}, "role": {}, "closure": {}}

    def note(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    for lab in (lists, ioi):
        tables = lab.roles((*PATTERNS, *COPYING), split="discover")
        found["scores"][lab.data.task] = {kind: top(table.means()) for kind, table in tables.items()}
        note(json.dumps(found["scores"][lab.data.task]))
    groups = {kind: lists.with_role(kind, least=LEAST) for kind in ("induction", "previous-token")}
    for kind, circuit in groups.items():
        estimate = lists.role(circuit, kind=kind)  # type: ignore[arg-type]
        found["role"][kind] = {"value": estimate.value, "interval": estimate.interval, **estimate.details}
    note(json.dumps(found["role"]))

    def judge(label: str, lab: Lab, circuit: Circuit, controls: int = controls, **how: Any) -> None:
        found["closure"][label] = closed(lab, circuit, controls, **how)
        note(f"{label} {json.dumps(found['closure'][label])}")

    judge("induction", lists, groups["induction"])
    judge("induction, same layers", lists, groups["induction"], FEW_SETS, match="layer")
    means = {
        kind: table.means() for kind, table in ioi.roles((*PATTERNS, *COPYING), split="discover").items()
    }
    looks, looks_away = means["answer-token"], means["foil-token"]
    movers = [h for h in looks if looks[h] >= LEAST and looks[h] > looks_away[h] and means["copy"][h] >= 0.5]
    against = [h for h in looks if looks[h] >= LEAST and means["copy-suppression"][h] >= 0.5]
    found["name movers"], found["negative name movers"] = (
        [str(h) for h in group] for group in (movers, against)
    )
    if movers:
        judge("name movers", ioi, chosen(ioi, movers, "name movers"), FEW_SETS)
    judge("previous-token", lists, groups["previous-token"], FEW_SETS)
    return found


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("name", choices=list(PREFIXES))
    parser.add_argument("--discover", type=int, default=30)
    parser.add_argument("--evaluate", type=int, default=30)
    parser.add_argument("--controls", type=int, default=45)
    given = parser.parse_args()
    found = measured(given.name, given.discover, given.evaluate, given.controls)
    sys.stdout.write(json.dumps(found) + "\n")
