"""``circuittest init``: draft a spec from what a model measures, and its lock."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuittest.commands import common
from circuittest.errors import UsageError

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab
    from circuittest.stats import Estimate

SUFFIX = ".circuit.yaml"
#: Thresholds are multiples of 1/STEPS.
STEPS = 20
_PLAIN = re.compile(r"[A-Za-z./][\w./:-]*")

HEAD = """\
# Drafted by `circuittest init` on {name}. It is yours to edit, and circuittest never writes it again.
{rule}
# The circuit, and what was measured, are in {lock}.
circuittest: 1
model: {model}
task: {task}
circuit: {circuit}
claims:
"""
RULE = """\
# Each threshold is the lower end of the 95 % interval on this model, rounded down to 0.05, and lowered further where
# the model would not pass its own claim."""
#: With a margin: what drift may be is left to the other claims, too.
RULE_WITH_MARGIN = """\
# Each threshold is the lower end of the 95 % interval on this model, less the margin of {margin:g}, which a tuned model
# may lose, then rounded down to 0.05, and lowered further where the model would not pass its own claim."""
TAIL = """\
  # For models tuned from this one. A margin is the largest change of no interest: a number for a person to choose.
"""
#: Claims against the lock, and the margins that are written beside them as examples.
COMPARED = (
    ("drift.behaviour", "{{margin: {0}}}", 0.05),
    ("drift.function", "{{margin: {0}}}", 0.15),
    ("drift.function", "{{id: drift.sufficiency, part: sufficiency, margin: {0}}}", 0.15),
    ("regression", "{{is: kept, margin: {0}}}", 0.1),
    ("drift.structure", "{{margin: {0}}}", 0.2),
)


@dataclass(frozen=True)
class Drafted:
    """A claim: its options, what was measured, and its threshold, or why it has none."""

    claim: str
    options: Mapping[str, Any]
    estimate: Estimate
    threshold: float | None
    reason: str = ""

    def line(self) -> str:
        """For the file."""
        if self.threshold is None:
            return f"  # {self.claim} is not claimed: {' '.join(self.reason.split())}\n"
        keys = {"min": f"{self.threshold:g}"} | {key: _flow(value) for key, value in self.options.items()}
        inner = ", ".join(f"{key}: {value}" for key, value in keys.items())
        return f"  - {self.claim}: {{{inner}}}    # measured {self.estimate.measured()}\n"


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("init", help="draft a spec from what a model measures, and its lock")
    common.add_model(parser)
    parser.add_argument(
        "--task", required=True, help="a task's name (`circuittest list tasks`), or a .jsonl or .csv file"
    )
    common.add_data(parser, discover=200, evaluate=200)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar=f"NAME{SUFFIX}",
        help="the spec; its lock lies beside it. Neither may exist",
    )
    parser.add_argument(
        "--universe",
        default="heads",
        help="which units are ranked: heads, mlps, all, kv, or several with commas",
    )
    parser.add_argument("--top", default="20%", help="K: share of the units in each example's circuit (20%%)")
    parser.add_argument(
        "--at", type=int, default=95, help="P: share of the examples that must agree, in %% (95)"
    )
    parser.add_argument(
        "--against", default="", metavar="TASKS", help="tasks for a claim of specificity, with commas"
    )
    parser.add_argument(
        "--margin",
        type=margin,
        metavar="M",
        help="also claim that a tuned model's behaviour and function drift by at most M points of accuracy, and lower "
        "the thresholds of the other claims by M",
    )
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the spec and its lock. Exit code 0."""
    from circuittest.lock import lock_path

    target = Path(arguments.output)
    if not target.name.endswith(SUFFIX) or target.name == SUFFIX:
        raise UsageError(
            f"{target} is no name of a spec", f"it must end in {SUFFIX}", f"write -o ioi{SUFFIX}"
        )
    for file in (target, lock_path(target)):
        if file.exists():
            raise UsageError(
                f"{file} is not overwritten",
                "it exists",
                "choose another name, or edit the spec that is there",
            )
    lab = _lab(arguments)
    universe = arguments.universe.split(",")
    recipe = {
        "universe": universe[0] if len(universe) == 1 else universe,
        "top": arguments.top if arguments.top.endswith("%") else f"{arguments.top}%",
        "at": arguments.at,
    }
    circuit = lab.shared(**recipe)
    if not circuit.units:
        raise UsageError(
            "there is no circuit to write claims about",
            str(circuit.origin["empty"]),
            "lower --at or raise --top",
        )
    against = [task for task in arguments.against.split(",") if task]
    drafted = draft(lab, circuit, against, room=arguments.margin or 0.0)
    if all(one.threshold is None for one in drafted):
        reasons = "; ".join(f"{one.claim}: {one.reason}" for one in drafted)
        raise UsageError("nothing can be claimed, and nothing was written", reasons)
    text = HEAD.format(
        name=lab.model.name,
        rule=RULE if arguments.margin is None else RULE_WITH_MARGIN.format(margin=arguments.margin),
        lock=lock_path(target).name,
        model=_flow(_beside(arguments.model, target, "./")),
        task=_flow(_task(arguments, target)),
        circuit=_flow(recipe),
    )
    text += "".join(one.line() for one in drafted) + compared(arguments.margin)
    lock = _write(target, text, lab, drafted)
    if arguments.json is not None:
        payload = {"circuit": circuit.to_dict(), "claims": lock.claims, "thresholds": _thresholds(drafted)}
        common.emit(arguments.json, payload, common.environment_of(lab.model))
    if arguments.json != "-":
        common.say(f"{text}\nwrote {target} and {lock_path(target).name}")
    return 0


def draft(lab: Lab, circuit: Circuit, against: list[str], *, room: float = 0.0) -> list[Drafted]:
    """What can be claimed of a circuit on the model that it was found in, and with `room` on models tuned from it."""
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("reuse", {}),
        ("necessity", {"controls": 40}),
        ("graded_necessity", {"controls": 40}),
        ("sufficiency", {}),
    ]
    if against:
        wanted.append(("specificity", {"against": against}))
    return [_drafted(lab, circuit, claim, options, room) for claim, options in wanted]


def _drafted(lab: Lab, circuit: Circuit, claim: str, options: Mapping[str, Any], room: float) -> Drafted:
    estimate = lab.measure(claim, circuit, **options)
    if estimate.invalid or estimate.interval is None:
        return Drafted(claim, options, estimate, None, f"invalid, {estimate.invalid}")
    low = estimate.interval[0] - room
    steps = math.floor(low * STEPS + 1e-9) if math.isfinite(low) else 0
    # with the threshold known, measuring stops early, at bounds that are a little wider
    while steps > 0 and (
        lab.measure(claim, circuit, decide=steps / STEPS, **options) >= steps / STEPS
    ).outcome != ("supported"):
        steps -= 1
    if steps > 0:
        return Drafted(claim, options, estimate, steps / STEPS)
    less = f", less the margin of {room:g}" if room else ""
    reason = f"no threshold from 0.05 is below {estimate.measured()}{less}"
    return Drafted(claim, options, estimate, None, reason)


def margin(text: str) -> float:
    """A margin, for argparse: a difference of accuracies between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no change of accuracy between 0 and 1, such as 0.1")
    return value


def compared(chosen: float | None) -> str:
    """The claims against the lock: with the margin that was chosen, else as comments. That of structure is a number of
    another kind, which nobody chose.
    """
    lines = []
    for claim, options, example in COMPARED:
        comment = chosen is None or claim == "drift.structure"
        value = example if comment else chosen
        lines.append(f"  {'# ' if comment else ''}- {claim}: {options.format(f'{value:g}')}\n")
    return TAIL + "".join(lines)


def _thresholds(drafted: list[Drafted]) -> dict[str, Any]:
    return {one.claim: {"min": one.threshold, "reason": one.reason} for one in drafted}


def _write(target: Path, text: str, lab: Lab, drafted: list[Drafted]) -> Any:
    """The lock first, so that a spec without one is never seen. Both are checked before either is in its place.

    Raises UsageError where another process wrote one of them while this one measured.
    """
    from circuittest.lock import lock_path
    from circuittest.spec import load_spec
    from circuittest.spec.lock import make_lock

    made: list[Any] = []

    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")
        spec = load_spec(path, name=target.name, locked=False)
        lock = make_lock(spec, lab, {one.claim: one.estimate for one in drafted})
        if target.exists():
            raise UsageError(
                f"{target} is not overwritten",
                "another process wrote it while this one measured",
                "look at what it wrote, or choose another name",
            )
        lock.save(lock_path(target), over=None)
        made.append(lock)

    try:
        common.write(target, write)
    except BaseException:  # Ctrl-C among them
        if made:  # a lock without its spec would stand in the way of the next draft
            lock_path(target).unlink(missing_ok=True)
        raise
    return made[0]


def _lab(arguments: argparse.Namespace) -> Lab:
    """The lab that the options describe, its model under a name that says nothing of where it lies."""
    from circuittest.lab import Lab
    from circuittest.models.loading import load_model
    from circuittest.store.default import default_store

    store = default_store()
    name = Path(arguments.model).resolve().name if Path(arguments.model).exists() else None
    return Lab(
        load_model(arguments.model, device=arguments.device, dtype=arguments.dtype, name=name, store=store),
        arguments.task,
        discover=arguments.discover,
        evaluate=arguments.evaluate,
        seed=arguments.seed,
        prefix=arguments.prefix,
        answers=arguments.answers,
        store=store,
    )


def _task(arguments: argparse.Namespace, target: Path) -> dict[str, Any]:
    file = arguments.task.lower().endswith((".jsonl", ".csv"))
    task = {"name": _beside(arguments.task, target, "") if file else arguments.task}
    task |= {key: getattr(arguments, key) for key in ("discover", "evaluate", "seed")}
    for key, usual in (("prefix", "auto"), ("answers", "first")):
        if getattr(arguments, key) != usual:
            task[key] = getattr(arguments, key)
    return task


def _beside(name: str, target: Path, here: str) -> str:
    """A file or folder as the spec must write it, relative to where the spec lies; other names as they are."""
    if not Path(name).exists():
        return name
    relative = Path(os.path.relpath(name, target.parent)).as_posix()
    return relative if relative.startswith("../") else here + relative


def _flow(value: Any) -> str:
    """YAML on one line."""
    import json

    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and not (_PLAIN.fullmatch(value) or re.fullmatch(r"[\d.]+%", value)):
        return json.dumps(value)
    return str(value)
