"""Circuit stability on sums, after arXiv 2505.24731: families over α, and whether instability goes with failure.

    python example_suites/circuit_stability/study.py

Options: ``--models zoo:mha zoo:gqa``, ``--per-cell 240``, ``--out build/circuit_stability``. Writes ``results.json``,
``page.html`` and ``tables.md``, with the tables that README.md shows.
"""

from __future__ import annotations

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sums import OPERANDS, Sums

from circuittest import Lab
from circuittest.claims.families import components, merges
from circuittest.claims.gates import competent
from circuittest.claims.subtasks import signed_scores, similarities
from circuittest.report import svg
from circuittest.report.style import STYLE
from circuittest.stats import ProportionInference
from circuittest.stats.resampling import generator
from circuittest.tasks import Partition

#: How many numbers the sums of the training texts have (circuittest.zoo.recipe).
TRAINED = {
    "zoo:mha": (2, 3, 4, 5),
    "zoo:redundant": (2, 3, 4, 5),
    "zoo:gqa": (2, 3),
    "zoo:gqa-mha": (2, 3),
}
ALPHAS = np.linspace(0, 1, 21)
DRAWS = 999
ALPHA = 0.6


def study(name: str, per_cell: int) -> dict[str, Any]:
    """Everything about one model."""
    task = Sums()
    half = per_cell * len(task.cells) // 2
    lab = Lab(name, task, discover=half, evaluate=half)
    accuracy = by_cell(lab)
    solved = [cell for cell in accuracy if accuracy[cell]["competent"]]
    found: dict[str, Any] = {"model": name, "trained": TRAINED[name], "examples": 2 * half, "cells": accuracy}
    n = 3 * per_cell // 5
    # Families are claimed of the subtasks that the model does. The others have scores, too, of whatever is done
    # instead: these are described, without a verdict.
    predicate = str(Partition.where("cell", "in", solved))
    able = lab.where(predicate)
    found["solved"] = summary(able.families("cell", alpha=ALPHA, n=n, replicates=40))
    labels, matrix, found["all"] = described(lab, n)
    found["instability"] = instability(labels, matrix, accuracy, TRAINED[name])
    found["order"] = order(labels, matrix, accuracy)
    found["differences"] = {by: difference(able, by, n) for by in ("operands", "decade", "larger")}
    return found


def by_cell(lab: Lab) -> dict[str, dict[str, Any]]:
    """Accuracy on both splits per cell with its interval, how many of those never seen are right, and the gate."""
    right: dict[str, list[tuple[bool, bool]]] = {}
    universe = lab.layout.universe("all")
    floors = {}
    for split in ("discover", "evaluate"):
        table = lab.outcomes([(), universe], split=split).measure(lab.accuracy)  # type: ignore[arg-type]
        for item, base in zip(getattr(lab.data, split), table[0], strict=True):
            right.setdefault(str(item.features["cell"]), []).append((bool(base), bool(item.features["seen"])))
    for cell in right:
        part = lab.where(f"cell == {cell}")
        floors[cell] = competent(part, universe, lab.accuracy)
    found = {}
    for cell in sorted(right):
        hits = [one for one, _ in right[cell]]
        unseen = [one for one, seen in right[cell] if not seen]
        found[cell] = {
            "n": len(hits),
            "accuracy": sum(hits) / len(hits),
            "interval": ProportionInference(sum(hits), len(hits)).interval(),
            "unseen": [sum(unseen), len(unseen)],
            "competent": floors[cell].passed,
        }
    return found


def described(lab: Lab, n: int) -> tuple[list[str], Any, dict[str, Any]]:
    """Cells, their similarities and families, whether or not the model can do them. Blocks that do not agree with
    themselves are left out, and listed.
    """
    scores = signed_scores(lab, "edges", "all", "eap")
    made = similarities(scores, Partition.parse("cell"), "spearman", n=n, replicates=0)
    if isinstance(made, str):
        raise SystemExit(made)
    steady = [i for i, r in enumerate(made.found.reliability) if r > 0.1]
    labels = [made.blocks.labels[i].removeprefix("cell=") for i in steady]
    matrix = made.found.corrected[np.ix_(steady, steady)]
    family = components(matrix >= ALPHA)
    members = [
        {"subtasks": [x for x, k in zip(labels, family, strict=True) if k == f]} for f in sorted(set(family))
    ]
    steps = np.array(merges(matrix))
    return (
        labels,
        matrix,
        {
            "families": len(members),
            "n": made.blocks.n,
            "subtasks": labels,
            "members": members,
            "barcode": [[float(a), 1 + int((steps < a).sum())] for a in ALPHAS],
            "similarity": matrix.tolist(),
            "lowest": float(matrix.min()),
            "reliability": dict(zip(made.blocks.labels, made.found.reliability.tolist(), strict=True)),
            "left_out": [label for i, label in enumerate(made.blocks.labels) if i not in steady],
        },
    )


def summary(estimate: Any) -> dict[str, Any]:
    """What a families claim found, and the barcode."""
    if estimate.invalid:
        return {"invalid": estimate.invalid}
    steps = np.array(estimate.details["barcode"])
    matrix = np.array(estimate.details["similarity"])
    return {
        "families": estimate.value,
        "interval": estimate.interval,
        "n": estimate.details["n"],
        "subtasks": estimate.details["subtasks"],
        "members": estimate.details["families"],
        "barcode": [[float(a), 1 + int((steps < a).sum())] for a in ALPHAS],
        "merges": steps.tolist(),
        "raw": [estimate.details["raw"], float(np.min(estimate.details["raw_matrix"]))],
        "similarity": matrix.tolist(),
        "lowest": float(matrix.min()),
        "overlap": overlaps(estimate),
    }


def overlaps(estimate: Any) -> list[dict[str, Any]]:
    """Per family: the smallest overlap of the 10 % largest edges between two of its subtasks."""
    return [
        {"subtasks": len(one["subtasks"]), "smallest": one["smallest_top_overlap"]}
        for one in estimate.details["families"]
    ]


def instability(labels: list[str], matrix: Any, accuracy: Any, trained: tuple[int, ...]) -> dict[str, Any]:
    """Does unlikeness to the trained subtasks go with failure? Rank correlation over subtasks.

    For each cell: its mean similarity with the cells of trained sizes (itself left out), and its accuracy. The
    p-value permutes the accuracies over cells. ``untrained``: the same over cells of untrained sizes alone, so that it
    is not the difference between trained and untrained.
    """
    size = [int(label.split("/")[0]) for label in labels]
    known = [i for i, k in enumerate(size) if k in trained]
    likeness = np.array([np.mean([matrix[i, j] for j in known if j != i]) for i in range(len(labels))])
    right = np.array([accuracy[label]["accuracy"] for label in labels])
    new = np.array([k not in trained for k in size])
    return {
        "likeness": dict(zip(labels, likeness.tolist(), strict=True)),
        "all": correlation(likeness, right),
        "untrained": correlation(likeness[new], right[new]),
    }


def order(labels: list[str], matrix: Any, accuracy: Any) -> dict[str, Any]:
    """(o1, o2) against (o2, o1): similarity of the circuits, and difference of accuracy, for each size and decade."""
    rows = []
    for label in labels:
        if label.endswith("/first") and (twin := label.replace("first", "last")) in labels:
            i, j = labels.index(label), labels.index(twin)
            gap = abs(accuracy[label]["accuracy"] - accuracy[twin]["accuracy"])
            rows.append({"cell": label.rpartition("/")[0], "similarity": float(matrix[i, j]), "gap": gap})
    found = correlation(np.array([r["similarity"] for r in rows]), np.array([r["gap"] for r in rows]))
    return {"pairs": rows, "correlation": found}


def correlation(one: Any, two: Any) -> dict[str, Any]:
    """Spearman's ρ with a two-sided permutation p; undefined where either does not vary."""
    if len(one) < 4 or np.ptp(one) == 0 or np.ptp(two) == 0:
        return {"n": len(one), "rho": None, "p": None}
    rho = float(spearmanr(one, two).statistic)
    rng = generator(0)
    beyond = sum(abs(spearmanr(one, rng.permutation(two)).statistic) >= abs(rho) - 1e-9 for _ in range(DRAWS))
    return {"n": len(one), "rho": rho, "p": (1 + beyond) / (1 + DRAWS)}


def difference(lab: Lab, by: str, n: int) -> dict[str, Any]:
    """Within against across values of a feature, as the claim `stability_difference`."""
    found = lab.stability_difference("operands * decade * larger", by=by, n=n, replicates=40)
    if found.invalid:
        return {"invalid": found.invalid}
    return {
        "value": found.value,
        "interval": found.interval,
        "means": found.details["means"],
        "labellings": found.details["labellings"],
        "verdict": found.compare(">", 0).outcome,
    }


def page(results: list[dict[str, Any]]) -> str:
    """The figures."""
    parts = []
    for one in results:
        parts.append(f"<h2>{escape(one['model'])}</h2>")
        for what, words in (("solved", "subtasks that the model can do"), ("all", "all subtasks")):
            found = one[what]
            if "invalid" in found:
                parts.append(f"<p>{escape(words)}: {escape(found['invalid'])}</p>")
                continue
            title = f"families over α, {words}"
            drawn = svg.curve(title, found["barcode"], across="α", up="families")
            names = [name for family in found["members"] for name in family["subtasks"]]
            at = [found["subtasks"].index(name) for name in names]
            cells = [[found["similarity"][i][j] for j in at] for i in at]
            short = [name.removeprefix("cell=") for name in names]
            frames, first = [], 0
            for family in found["members"]:
                frames.append((first, len(family["subtasks"])))
                first += len(family["subtasks"])
            heat = svg.grid("similarity of circuits", short, short, cells, frames=frames)
            parts += [f"<figure>{drawn}<figcaption>{escape(title)}</figcaption></figure>"]
            parts += [
                f"<figure>{heat}<figcaption>Similarity; frames: families at α = 0.6</figcaption></figure>"
            ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Circuit stability</title><style>{STYLE}</style>'
        f"<main><h1>Circuit stability</h1>{''.join(parts)}</main></html>"
    )


def markdown(results: list[dict[str, Any]]) -> str:
    """The tables of README.md."""
    lines = [
        "| model | numbers | "
        + " | ".join(f"{10 * d}–{10 * d + 9} {w}" for d in (0, 1, 2) for w in ("first", "last"))
        + " |"
    ]
    lines.append("|---" * 8 + "|")
    for one in results:
        for k in OPERANDS:
            cells = [one["cells"].get(f"{k}/{d}/{w}") for d in (0, 1, 2) for w in ("first", "last")]
            shown = [
                "" if c is None else f"{c['accuracy']:.2f}{'' if c['competent'] else ' ✗'}" for c in cells
            ]
            trained = "" if k in one["trained"] else " (untrained)"
            lines.append(f"| {one['model']} | {k}{trained} | " + " | ".join(shown) + " |")
    lines += [
        "",
        "| model | subtasks | families at α = 0.6 | lowest similarity | families over α |",
        "|---" * 5 + "|",
    ]
    for one in results:
        for what in ("solved", "all"):
            found = one[what]
            if "invalid" in found:
                lines.append(f"| {one['model']} | {what} | {found['invalid']} | | |")
                continue
            steps = [(a, k) for a, k in found["barcode"] if k > 1]
            lines.append(
                f"| {one['model']} | {what}, {len(found['subtasks'])} of {found['n']} examples | {found['families']:g}"
                + (" [{:g}, {:g}]".format(*found["interval"]) if "interval" in found else "")
                + f" | {found['lowest']:.2f} | "
                + ", ".join(f"{a:.2f}: {k}" for a, k in steps)
                + " |"
            )
    lines += ["", "| model | question | n | ρ | p |", "|---" * 5 + "|"]
    for one in results:
        for words, found in (
            ("accuracy and likeness to trained sizes, all subtasks", one["instability"]["all"]),
            ("the same, untrained sizes only", one["instability"]["untrained"]),
            (
                "size of the accuracy gap and similarity, larger number first or last",
                one["order"]["correlation"],
            ),
        ):
            rho = "undefined" if found["rho"] is None else f"{found['rho']:+.2f} | {found['p']:.3f}"
            lines.append(f"| {one['model']} | {words} | {found['n']} | {rho} |")
    lines += ["", "| model | by | within − across | labellings | p | above 0? |", "|---" * 6 + "|"]
    for one in results:
        for by, found in one["differences"].items():
            if "invalid" in found:
                lines.append(f"| {one['model']} | {by} | {found['invalid']} | | | |")
                continue
            low, high = found["interval"]
            lines.append(
                f"| {one['model']} | {by} | {found['value']:+.3f} [{low:.3f}, {high:.3f}] | "
                f"{found['labellings']['count']} | {found['labellings']['p_greater']:.4f} | {found['verdict']} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["zoo:mha", "zoo:gqa"], choices=list(TRAINED))
    parser.add_argument("--per-cell", type=int, default=240)
    parser.add_argument("--out", type=Path, default=Path("build/circuit_stability"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = [study(name, options.per_cell) for name in options.models]
    (options.out / "results.json").write_text(json.dumps(results, indent=1, default=float), encoding="utf-8")
    (options.out / "page.html").write_text(page(results), encoding="utf-8")
    text = markdown(results)
    (options.out / "tables.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
