"""Every claim on one model and task: estimate, interval, verdict, seconds and memory, in one table.

    python -m benchmarks.claims                           # zoo:gqa, ioi: minutes
    python -m benchmarks.claims --smollm2 --markdown PATH # SmolLM2-135M, ioi, 200 + 200 examples: half an hour

The order is that of the table, and a claim uses what earlier ones measured, as it does in a session: scores are
attributed once. Memory is the growth of the process's peak during the claim. Thresholds are examples, chosen before
anything was measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import resident
from circuittest.circuit import Circuit
from circuittest.claims import claim_kinds
from circuittest.errors import CircuittestError
from circuittest.lab import Lab

Op = Literal[">=", ">", "<=", "<"]


@dataclass(frozen=True)
class Case:
    """One claim with its options and the threshold it is compared with."""

    claim: str
    op: Op
    threshold: float
    options: dict[str, Any]
    of: Literal["shared", "edges", ""] = "shared"

    @property
    def name(self) -> str:
        """The claim, and what is not the default."""
        told = ", ".join(f"{k}={v}" for k, v in self.options.items() if k not in ("tasks", "against"))
        return f"{self.claim} ({told or 'edges'})" if told or self.of == "edges" else self.claim


def few_cases(others: list[str], partition: str, task: str) -> list[Case]:
    """Every registered claim once, with few control sets: a forward pass of a real model takes seconds."""
    return [
        Case("reuse", ">=", 0.2, {}),
        Case("coverage", ">=", 0.2, {}),
        Case("necessity", ">=", 0.3, {}),
        Case("graded_necessity", ">=", 0.3, {"controls": 10}),
        Case("sufficiency", ">=", 0.7, {"ablation": "mean"}),
        Case("sufficiency", ">=", 0.7, {"ablation": "counterfactual"}),
        Case("equivalence", "<=", 0.1, {}),
        Case("independence", "<=", 0.2, {}),
        Case("completeness", "<=", 0.2, {}),
        Case("closure", ">", 0.0, {"controls": 20}),
        Case("minimality", ">=", 1.0, {"controls": 10}),
        Case("concentration", ">=", 0.1, {"statistic": "top", "order": "attribution"}, of=""),
        Case("specificity", ">", 0.0, {"against": others}),
        Case("specificity_matrix", ">", 0.0, {"tasks": [task, *others]}, of=""),
        Case("selective", ">", 0.0, {"against": others[0], "controls": 5}),
        Case("transfer", ">=", 0.0, {"to": others[0], "controls": 10}),
        Case("stability", ">=", 0.6, {"partition": partition, "universe": "heads", "level": "units"}, of=""),
        Case("families", "<=", 1, {"partition": partition, "universe": "heads", "level": "units"}, of=""),
        Case("reuse", ">=", 0.05, {}, of="edges"),
    ]


def cases(others: list[str], partition: str, task: str) -> list[Case]:
    """Every registered claim at least once; `others` are donor tasks."""
    return [
        Case("reuse", ">=", 0.2, {}),
        Case("reuse", ">=", 0.05, {}, of="edges"),
        Case("coverage", ">=", 0.2, {}),
        Case("necessity", ">=", 0.3, {}),
        Case("necessity", ">=", 0.3, {"match": "layer"}),
        Case("graded_necessity", ">=", 0.3, {}),
        Case("sufficiency", ">=", 0.7, {"ablation": "mean"}),
        Case("sufficiency", ">=", 0.7, {"ablation": "counterfactual"}),
        Case("completeness", "<=", 0.2, {}),
        Case("minimality", ">=", 1.0, {}),
        Case("equivalence", "<=", 0.1, {}),
        Case("independence", "<=", 0.2, {}),
        Case("closure", ">", 0.0, {}),
        Case("specificity", ">", 0.0, {"against": others}),
        Case("specificity_matrix", ">", 0.0, {"tasks": [task, *others]}, of=""),
        Case("selective", ">", 0.0, {"against": others[0]}),
        Case("stability", ">=", 0.6, {"partition": partition}, of=""),
        Case("families", "<=", 1, {"partition": partition}, of=""),
        Case("concentration", "<=", 20, {}, of=""),
        Case("concentration", "<=", 20, {"per": "kv"}, of=""),
        Case("transfer", ">=", 0.0, {"to": others[0]}),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="zoo:gqa")
    parser.add_argument("--smollm2", action="store_true", help="SmolLM2-135M from its wheel on PyPI")
    parser.add_argument("--task", default="ioi")
    parser.add_argument("--against", nargs="+", default=["sva", "facts"], help="donor tasks")
    parser.add_argument("--partition", default="template", help="a feature of the task's examples")
    parser.add_argument("--examples", type=int, default=200, help="for discovery, and for evaluation")
    parser.add_argument(
        "--top", help="top K %% of each example; by default 20%%, and 5%% of SmolLM2's 270 heads"
    )
    parser.add_argument("--only", nargs="+", default=[], help="claims by name")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--markdown", type=Path, help="write the table here, too, row by row")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    lab = lab_of(options)
    top = options.top or ("5%" if options.smollm2 else "20%")
    circuits: dict[str, Circuit | None] = {"": None}
    chosen = [
        case
        for case in (few_cases if options.smollm2 else cases)(
            options.against, options.partition, options.task
        )
        if not options.only or case.claim in options.only
    ]
    rows: list[list[str]] = []
    started = time.perf_counter()
    for case in chosen:
        if case.claim == "specificity_matrix":
            case.options["top"] = top
        if case.of not in circuits:
            level = "edges" if case.of == "edges" else "units"
            circuits[case.of] = timed(
                f"the shared circuit ({level})",
                rows,
                lambda level=level: lab.shared(top=top, at=95, level=level),
            )
        timed(case.name, rows, lambda case=case: judged(lab, case, circuits[case.of]))
        if options.markdown:
            write(options.markdown, options, rows, time.perf_counter() - started)
    table = Table(title=f"{lab}: {options.examples} + {options.examples} examples, {options.threads} threads")
    for column in ("claim", "estimate", "threshold", "verdict", "s", "MiB"):
        table.add_column(column, justify="right" if column in ("s", "MiB") else "left")
    for row in rows:
        table.add_row(*row)
    Console(width=150).print(table, f"{time.perf_counter() - started:.0f} s in all")
    if missing := set(claim_kinds()) - {case.claim for case in chosen}:
        sys.stdout.write(f"not measured: {', '.join(sorted(missing))}\n")


def lab_of(options: argparse.Namespace) -> Lab:
    """The lab that the options describe."""
    sizes = {"discover": options.examples, "evaluate": options.examples}
    if not options.smollm2:
        return Lab(options.model, options.task, **sizes)
    from example_suites.smollm2.conftest import gguf

    file = gguf()
    if isinstance(file, str):
        sys.exit(file)
    # The token that separated the training documents; without it the first word becomes the sink.
    return Lab(str(file), options.task, prefix="<|endoftext|>", name="smollm2", **sizes)


def judged(lab: Lab, case: Case, circuit: Circuit | None) -> list[str]:
    """Estimate, threshold and verdict in words."""
    # The threshold is told beforehand, as specs do, so that measuring may stop once it is decided.
    estimate = lab.measure(case.claim, circuit, decide=case.threshold, **case.options)
    verdict = estimate.compare(case.op, case.threshold)
    label = f", {estimate.label}" if estimate.label else ""
    value = estimate.invalid if estimate.invalid else estimate.measured()
    reason = verdict.reason if verdict.outcome in ("undecided",) else ""
    outcome = f"{verdict.outcome}{label}" + (f": {reason}" if reason else "")
    return [value, f"{case.op} {case.threshold:g}", outcome]


def timed(name: str, rows: list[list[str]], call: Callable[[], Any]) -> Any:
    """Run something and add its row."""
    resident.forget_peak()
    before, started = resident.now(), time.perf_counter()
    result: Any = None
    try:
        result = call()
        cells = result if isinstance(result, list) else [f"{len(result)} members", "", ""]
    except CircuittestError as error:
        cells = [str(error), "", "refused"]
    rows.append([name, *cells, f"{time.perf_counter() - started:.1f}", f"{resident.peak() - before:.0f}"])
    sys.stderr.write(" | ".join(rows[-1]) + "\n")
    return result


def write(path: Path, options: argparse.Namespace, rows: list[list[str]], seconds: float) -> None:
    """The table in Markdown, with the command that makes it."""
    model = "SmolLM2-135M-Instruct" if options.smollm2 else options.model
    command = " ".join(["python -m benchmarks.claims", *sys.argv[1:]])
    head = [
        f"# Every claim on {model}, {options.task}",
        "",
        f"Made by `{command}`: {options.examples} discovery and {options.examples} evaluation examples, "
        f"{options.threads} CPU threads, {seconds:.0f} s in all. Thresholds are examples; a claim uses the tables "
        "that earlier ones measured. Memory is what a claim needs at its peak beyond what was resident before it.",
        "",
        "| claim | estimate | threshold | verdict | s | MiB |",
        "| --- | --- | --- | --- | ---: | ---: |",
    ]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    path.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
