"""Does the regression verdict say what a fine-tune did, and how often does a benign one raise an alarm?

    python benchmarks/statistics/fine_tunes.py known             # the fine-tunes of the zoo, a few minutes of one core
    python benchmarks/statistics/fine_tunes.py benign --count 50 # half a minute of one core each

*Known*: every fine-tune of the zoo on tasks that it is known to have kept or lost, with the known outcome beside the
verdict; `--only NAME` takes one. *Benign*: `zoo:gqa` trained on by the recipe of `zoo:gqa@benign`, with other texts for
every seed, and judged by what `circuittest init --margin` drafts, too. An alarm is everything but "supported",
undecided and invalid included. Bar: at most `RATE` of them. `--json PATH` keeps what is done after every model, and
what is there is not done again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from circuittest import Lab
from circuittest.commands.init import draft
from circuittest.lock import lock_path
from circuittest.models.loading import from_module, load_model
from circuittest.spec import judge, load_spec
from circuittest.spec.lock import make_lock
from circuittest.stats import ProportionInference
from circuittest.zoo import FINE_TUNES, built
from circuittest.zoo.fine_tunes import RECIPES, FineTune, tune

#: Share of benign fine-tunes that may raise an alarm, for each claim.
RATE = 0.05
MARGINS = {"behaviour": 0.15, "function": 0.25, "structure": 0.3, "regression": 0.25}
#: The margin with which the other claims are drafted.
DRAFTED = 0.15
#: Margins at which the alarms of the drift claims are counted as well.
OTHERS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
SPEC = """\
circuittest: 1
model: zoo:gqa
task: {{name: {task}, discover: {discover}, evaluate: {evaluate}}}
circuit: {{top: 20%, at: 95}}
claims:
  - drift.behaviour: {{margin: {behaviour}}}
  - drift.function: {{margin: {function}}}
  - drift.function: {{id: drift.sufficiency, part: sufficiency, margin: {function}}}
  - drift.structure: {{margin: {structure}}}
  - regression: {{is: kept, margin: {regression}}}
"""
DRIFT = ("drift.behaviour", "drift.function", "drift.sufficiency", "drift.structure")
#: What is known: the outcome on IOI, and of the benign one on another task. What a fine-tune that kept the behaviour of
#: another task did to the circuit there is not known ("–"): it is shown, and nothing is required of it.
UNKNOWN, OTHER = "–", "not kept"
KNOWN = {
    "benign": {"ioi": "kept", "sva": "kept"},
    "new-skill": {"ioi": "kept", "sva": UNKNOWN},
    "weakened-facts": {"facts": "weakened", "ioi": UNKNOWN},
    "destroyed-ioi": {"ioi": "broken", "sva": UNKNOWN},
    "relocated-ioi": {"ioi": "moved"},
    "spread-ioi": {"ioi": "spread"},
}


@dataclass(frozen=True)
class Base:
    """A spec with its lock, for one task."""

    spec: Any
    lab: Lab

    @classmethod
    def of(cls, task: str, place: Path, sizes: dict[str, Any]) -> Base:
        lab = Lab("zoo:gqa", task, **sizes)
        path = place / f"{task}.circuit.yaml"
        drafted = draft(lab, lab.shared(top="20%", at=95), [], room=DRAFTED)
        lines = "".join(one.line() for one in drafted)
        path.write_text(SPEC.format(task=task, **sizes, **MARGINS) + lines)
        measured = {one.claim: one.estimate for one in drafted}
        make_lock(load_spec(path, locked=False), lab, measured).save(lock_path(path))
        return cls(load_spec(path), lab)

    def judged(self, model: Any) -> dict[str, Any]:
        """Claim id → outcome, value and label on another model."""
        lab = Lab(model, self.lab.data)
        found = {}
        for claim in self.spec.claims:
            verdict = judge(self.spec, claim, lab)
            estimate = verdict.estimate
            found[claim.id] = {
                "outcome": verdict.outcome,
                "value": estimate.value,
                "interval": None if estimate.invalid else estimate.interval,
                "label": estimate.label,
                "reason": verdict.reason if verdict.outcome == "invalid" else "",
            }
        return found


def known(bases: dict[str, Base], names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The fine-tunes that are there, on the tasks of which the outcome is known."""
    for name in names:
        if not built(f"gqa@{name}"):
            print(f"zoo:gqa@{name} was not built", file=sys.stderr)
            continue
        model = load_model(f"zoo:gqa@{name}")
        for task, truth in KNOWN[name].items():
            yield {"model": name, "task": task, "truth": truth, **bases[task].judged(model)}


def benign(base: Base, recipe: FineTune, seeds: range, done: set[int]) -> Iterator[dict[str, Any]]:
    """Benign fine-tunes of other seeds than the one that ships (0)."""
    for seed in seeds:
        if seed in done:
            continue
        start = load_model("zoo:gqa", device="cpu")
        began = time.process_time()
        module = tune(start.module, recipe, seed)
        trained = time.process_time() - began
        judged = base.judged(from_module(module, start.tokenizer, f"benign {seed}"))
        yield {
            "seed": seed,
            "train_s": round(trained, 1),
            "judge_s": round(time.process_time() - began - trained, 1),
            **judged,
        }


def alarms(
    rows: list[dict[str, Any]], claim: str, margin: float | None = None
) -> tuple[int, int, tuple[float, float]]:
    """How many alarms, of how many, and the 95 % interval of the rate; at another margin than the spec's if given."""
    if margin is None:
        raised = [row[claim]["outcome"] != "supported" for row in rows]
    else:
        raised = [row[claim]["interval"] is None or row[claim]["interval"][1] > margin for row in rows]
    rate = ProportionInference(sum(raised), len(raised))
    return sum(raised), len(raised), rate.interval(0.95)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("known", "benign"))
    parser.add_argument("--count", type=int, default=50, help="the last seed of a benign one (50)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--examples", type=int, default=200, help="evaluation examples (200)")
    parser.add_argument(
        "--steps", type=int, help="of each benign fine-tune, where it is not the recipe's 100"
    )
    parser.add_argument("--only", choices=tuple(KNOWN), help="of the known ones (all)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    sizes = {"discover": min(arguments.examples, 200), "evaluate": arguments.examples}
    recipe = RECIPES["benign"]
    recipe = replace(recipe, steps=arguments.steps or recipe.steps)
    with tempfile.TemporaryDirectory() as place:
        if arguments.what == "known":
            names = [arguments.only] if arguments.only else list(FINE_TUNES)
            tasks = dict.fromkeys(task for name in names for task in KNOWN[name])
            bases = {task: Base.of(task, Path(place), sizes) for task in tasks}
            good = True
            print("| fine-tune | task | known | verdict | behaviour | necessity | sufficiency | structure |")
            print("|---|---|---|---|---|---|---|---|")
            for row in known(bases, names):
                kept = row["regression"]["outcome"]
                label = row["regression"]["label"] or (OTHER if kept == "refuted" else kept)
                good = good and row["truth"] in (label, UNKNOWN)
                cells = [_cell(row[claim]) for claim in DRIFT]
                print(
                    f"| {row['model']} | {row['task']} | {row['truth']} | {label} | {' | '.join(cells)} |",
                    flush=True,
                )
            return 0 if good else 1
        rows = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else []
        base = Base.of("ioi", Path(place), sizes)
        for row in benign(
            base, recipe, range(arguments.first, arguments.count + 1), {row["seed"] for row in rows}
        ):
            rows.append(row)
            if arguments.json:
                arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
        good = True
        print("| claim | alarms | of | rate, 95 % interval |")
        print("|---|---|---|---|")
        for claim in (claim.id for claim in base.spec.claims):
            count, whole, (low, high) = alarms(rows, claim)
            good = good and low <= RATE
            print(f"| {claim} | {count} | {whole} | {count / whole:.2f} [{low:.2f}, {high:.2f}] |")
        print(f"\n| margin | {' | '.join(DRIFT)} |\n|---|{'---|' * len(DRIFT)}")
        for margin in OTHERS:
            print(f"| {margin:g} | {' | '.join(str(alarms(rows, claim, margin)[0]) for claim in DRIFT)} |")
        return 0 if good else 1


def _cell(verdict: dict[str, Any]) -> str:
    return "invalid" if verdict["value"] is None else f"{verdict['value']:.2f} {verdict['outcome']}"


if __name__ == "__main__":
    sys.exit(main())
