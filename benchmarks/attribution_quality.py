"""How well attribution ranks the heads of real models, against exact interventions on every head alone.

    CIRCUITTEST_GEMMA=accept python -m benchmarks.attribution_quality [--examples 40] [--models smollm2 gemma3]
        [--markdown docs/attribution-quality.md]

Indirect object identification, metric logit difference, float32. Each model is measured in a process of its own
(`tests.helpers.quality`), and its part is printed when it is done. Without the variable, by which the Gemma Terms of
Use are accepted, Gemma is left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.helpers.quality import EXACT, TOP
from tests.helpers.real import measured_apart

NAMES = {"smollm2": "SmolLM2-135M-Instruct", "gemma3": "Gemma-3-270M"}


def markdown(name: str, result: dict[str, Any]) -> str:
    """One model's part of the report."""
    if "missing" in result:
        return f"## {NAMES[name]}\n\nNot measured: {result['missing']}"
    spearman, top = result["other"]
    lines = [
        f"## {NAMES[name]}",
        "",
        f"{result['heads']} heads, {result['examples']} examples, weights {result['fingerprint'][:12]}. Peak memory "
        f"of the process: {result['loaded']:.2f} GB with the model loaded and checked, {result['peak']:.2f} GB after "
        "all attribution.",
        "",
        f"| | zero: Spearman | top {TOP} | counterfactual: Spearman | top {TOP} | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for label, pairs in result["rows"].items():
        cells = [cell for rho, shared in pairs for cell in (f"{rho:.2f}", f"{shared}")]
        took = result["seconds"].get(label)
        lines.append(f"| {label} | {' | '.join(cells)} | {'' if took is None else f'{took:.0f}'} |")
    exact = ", ".join(f"{value} {result['seconds'][value]:.0f} s" for value in EXACT)
    return "\n".join(
        [
            *lines,
            "",
            f"The two exact tables agree with each other by {spearman:.2f} and {top} of {TOP}; they took: {exact} "
            f"({result['threads']} thread{'s' * (result['threads'] > 1)}, a busy machine).",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="attribution against exact single-head interventions")
    parser.add_argument("--models", nargs="+", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--examples", type=int, default=40)
    parser.add_argument("--markdown", type=Path, help="replace everything from the first '## ' of this file")
    parser.add_argument(
        "--json", type=Path, help="results to keep; those it has already are not measured again"
    )
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text(encoding="utf-8"))
    for name in options.models:
        if name not in results:
            results[name] = measured_apart(name, "tests.helpers.quality", str(options.examples))
        print(markdown(name, results[name]) + "\n", flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if options.markdown:
        head = options.markdown.read_text(encoding="utf-8").split("\n## ")[0].rstrip()
        parts = [markdown(name, results[name]) for name in options.models]
        options.markdown.write_text("\n\n".join([head, *parts]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
