"""Where a real model's heads of some roles are, and what each costs alone: a figure of each role, and a table.

    python -m example_suites.localisation.roles smollm2 --out build/localisation
    CIRCUITTEST_GEMMA=accept python -m example_suites.localisation.roles gemma3 --out build/localisation

Scores come from discovery examples, effects (zero ablation, log-probability of the answer) from evaluation examples.
Lists of repeated words show induction and previous-token heads, IOI those that look at the indirect object. Written are
DIR/MODEL-ROLE.svg, a map of all heads with those of 0.4 and more framed, and DIR/MODEL-roles.json. A minute each.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from circuittest import Lab
from circuittest.models import load_model
from circuittest.report.plots import unit_map
from circuittest.report.style import STYLE
from circuittest.stats import MeanInference
from circuittest.units import Unit
from tests.helpers.real import PREFIXES, file_of

#: Role → the task that shows it.
SHOWN = {"induction": "induction", "previous-token": "induction", "answer-token": "ioi"}
LEAST = 0.4


def measured(lab: Lab, kinds: list[str]) -> dict[str, Any]:
    """Of each role: every head's score, and what each head that has it costs by itself, with its 95 % interval."""
    scores = {kind: table.means() for kind, table in lab.roles(kinds, split="discover").items()}
    having = sorted({head for means in scores.values() for head, mean in means.items() if mean >= LEAST})
    rows = lab.outcomes([(), *((head,) for head in having)]).measure("log_prob")
    lost = {
        head: MeanInference(rows[0] - row, bounds=None) for head, row in zip(having, rows[1:], strict=True)
    }
    return {
        kind: {
            "task": lab.data.task,
            "discover": len(lab.data.discover),
            "evaluate": len(lab.data.evaluate),
            "log_prob": float(rows[0].mean()),
            "scores": {str(head): mean for head, mean in means.items()},
            "lost": {
                str(head): [lost[head].value, *lost[head].interval()]
                for head in _ranked(means)
                if means[head] >= LEAST
            },
        }
        for kind, means in scores.items()
    }


def _ranked(means: dict[Unit, float]) -> list[Unit]:
    return sorted(means, key=lambda head: (-means[head], head.order))


def table(found: dict[str, Any]) -> str:
    """Heads by role, as Markdown."""
    lines = ["| role | head | score | log-prob lost without it |", "|---|---|---|---|"]
    for kind, one in found.items():
        for head, (value, low, high) in one["lost"].items():
            score = one["scores"][head]
            lines.append(f"| {kind} | {head} | {score:.2f} | {value:.2f} [{low:.2f}, {high:.2f}] |")
    return "\n".join(lines)


def figure(name: str, kind: str, one: dict[str, Any]) -> str:
    """A map of the scores, as an SVG file that stands alone."""
    title = f"{name}: {kind} scores on {one['task']}, {LEAST} and more framed"
    drawn = unit_map(title, title, one["scores"], list(one["lost"]))
    if drawn is None:
        raise ValueError(f"{kind}: there is nothing to draw")
    head, rest = drawn.svg.split("</title>", 1)
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}</title><style>{STYLE}</style>{rest}\n"


def main() -> None:
    """Measure, write the figures and the numbers, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=list(PREFIXES))
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--discover", type=int, default=20)
    parser.add_argument("--evaluate", type=int, default=20)
    arguments = parser.parse_args()
    file = file_of(arguments.name)
    if isinstance(file, str):
        raise SystemExit(file)
    model = load_model(str(file))
    found: dict[str, Any] = {}
    for task in dict.fromkeys(SHOWN.values()):
        sizes = {"discover": arguments.discover, "evaluate": arguments.evaluate}
        lab = Lab(model, task, prefix=PREFIXES[arguments.name], **sizes)
        found |= measured(lab, [kind for kind, own in SHOWN.items() if own == task])
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1) + "\n"
    (arguments.out / f"{arguments.name}-roles.json").write_text(text, encoding="utf-8")
    for kind, one in found.items():
        (arguments.out / f"{arguments.name}-{kind}.svg").write_text(
            figure(arguments.name, kind, one), encoding="utf-8"
        )
    print(table(found))


if __name__ == "__main__":
    main()
