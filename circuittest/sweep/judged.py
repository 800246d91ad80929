"""What an item measures: the claims of a spec on a model, the circuit that they judge, and what its heads look at.

Beside the verdicts stand the sizes of the circuit, the circuits of resampled discovery examples
(`circuittest.sweep.resampled`), every head's scores for some roles, the behaviour, and the number of parameters, from
which a series is made without another look at the model (`circuittest.sweep.summary`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuittest.circuit import Circuit
from circuittest.errors import UnsupportedModel
from circuittest.sweep.items import Item
from circuittest.sweep.resampled import resampled

if TYPE_CHECKING:
    from circuittest.find.roles.table import RoleTable


def judged(one: Item) -> dict[str, Any]:
    """Load the model, judge every claim of the spec, and measure what a series needs.

    Returns
    -------
    dict
        Plain JSON types: ``key``, ``spec``, ``model``, ``parameters`` (numbers in the weights, shared ones once; None
        for a quantised model, which packs them), ``accuracy``, ``absent`` (why the model does not do the task, or ""),
        ``behaviour`` (means over the evaluation examples: ``log_prob``, ``logit_diff``, ``prob_diff``; None where
        undefined), ``roles`` (see `role_scores`), ``circuit`` (see `circuit_of`; None where the behaviour is absent or
        the spec asks for none) and ``records``.
    """
    from circuittest.claims.gates import competent
    from circuittest.lab import Lab
    from circuittest.models.loading import load_model
    from circuittest.report.records import record
    from circuittest.spec import judge, load_spec
    from circuittest.store import Store
    from circuittest.tasks.names import is_path

    path = Path(one.spec)
    spec = load_spec(path, name=path.name)
    store = None if one.store is None else Store(one.store)
    model = load_model(one.place, device=one.device, dtype=one.dtype, name=one.model, store=store)
    task = str(path.parent / spec.task) if is_path(spec.task) else spec.task
    lab = Lab(model, task, store=store, **spec.task_options)
    gate = competent(lab, lab.layout.universe("all"), lab.accuracy)
    records = []
    for claim in spec.claims:
        if claim.skip:
            continue
        verdict = judge(spec, claim, lab)
        made = record(verdict, id=f"{path.name}::{claim.id}[{one.model}]", outcome="error")
        made["outcome"] = {"supported": "passed", "refuted": "failed"}.get(made["verdict"], "error")
        records.append(made)
    return {
        "key": one.key,
        "spec": path.name,
        "model": one.model,
        "parameters": _parameters(model),
        "accuracy": float(gate.accuracy),
        "absent": "" if gate.passed else gate.reason,
        "behaviour": _behaviour(lab),
        "roles": role_scores(lab, one.roles),
        "circuit": circuit_of(spec, lab, one.resamples) if gate.passed else None,
        "records": records,
    }


def circuit_of(spec: Any, lab: Any, resamples: int = 0) -> dict[str, Any] | None:
    """The circuit that the claims judge in this model: the lock's, the one given, or found by the recipe.

    Returns
    -------
    dict or None
        None where the spec asks for none. ``members``; ``units`` that these touch; ``possible``, how many members there
        could be; ``edges`` and ``of_edges``, None for a circuit of units; ``nodes``, the heads and MLPs that it
        touches, None where it has parts of MLPs, and ``of_nodes``; ``heads`` among these; ``layout``, the sizes of the
        architecture; ``given``, not found in this model; ``empty``, why it is; ``resampled``, None for a circuit that
        was given, else as `circuittest.sweep.resampled.resampled` says.
    """
    from circuittest.find.induced import edge_universe
    from circuittest.find.recipe import propose
    from circuittest.measure.edges import edges

    locked = None if spec.lock is None or spec.rediscover else spec.lock.circuits.get("circuit")
    source = spec.circuit if locked is None else locked.circuit
    if source is None:
        return None
    layout = lab.layout
    fixed = isinstance(source, Circuit)
    found = lab.circuit(source) if fixed else propose(lab, source)
    options = {} if fixed else dict(source)
    by_edges = bool(found.edges) or options.get("level") == "edges"
    universe = options.get("universe", "all" if fixed or options.get("method") == "minimal" else "heads")
    ends = {end for edge in found.edges for end in (edge.source, edge.target)} | set(found.units)
    units = sorted(unit for unit in ends if unit.kind not in ("embed", "logits"))
    small = any(unit.kind in ("expert", "neuron") for unit in units)
    wires = len(edges(layout)[0]) if by_edges else None
    possible = len(edge_universe(layout, universe) if by_edges else layout.universe(universe))
    # which of its heads read a KV group an edge does not say
    nodes = layout.expand(unit for unit in units if not small and (found.units or unit.kind != "kv"))
    return {
        "members": [str(member) for member in found],
        "units": [str(unit) for unit in units],
        "possible": possible,
        "edges": len(found.edges) if by_edges else None,
        "of_edges": wires,
        "nodes": None if small else len(nodes),
        "of_nodes": len(layout.units(("head", "mlp"))),
        "heads": None if small else [str(unit) for unit in nodes if unit.kind == "head"],
        "layout": [layout.n_layers, layout.n_heads, layout.n_kv_heads, layout.parallel],
        "given": fixed,
        "empty": "" if len(found) else str(found.origin.get("empty", "")),
        "resampled": None if fixed else resampled(lab, options, found, resamples),
    }


def role_scores(lab: Any, kinds: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Every head's score for some roles on the evaluation examples.

    Returns
    -------
    dict
        Role → ``heads``: head → its mean and the standard error of that (None for a single example); ``n``, the
        examples that have a score; ``undefined``, why there is none, or "".
    """
    found: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        try:
            found[kind] = _scores(lab.roles([kind])[kind])
        except UnsupportedModel as error:
            found[kind] = {"heads": {}, "n": 0, "undefined": str(error)}
    return found


def _scores(table: RoleTable) -> dict[str, Any]:
    rows = table.values[table.defined]
    n = len(rows)
    if not n:
        return {"heads": {}, "n": 0, "undefined": table.undefined}
    errors = [None] * len(table.heads) if n < 2 else (rows.std(0, ddof=1) / math.sqrt(n)).tolist()
    means = rows.mean(0).tolist()
    heads = {str(head): [mean, error] for head, mean, error in zip(table.heads, means, errors, strict=True)}
    return {"heads": heads, "n": n, "undefined": ""}


def _parameters(model: Any) -> int | None:
    return None if model.quantised else sum(weight.numel() for weight in model.module.parameters())


def _behaviour(lab: Any) -> dict[str, float | None]:
    """Means over the evaluation examples of what the model does when nothing is ablated."""
    table = lab.outcomes([()])
    found: dict[str, float | None] = {}
    for name in ("log_prob", "logit_diff", "prob_diff"):
        mean = float(table.measure(name)[0].mean(dtype="float64"))
        found[name] = mean if math.isfinite(mean) else None
    return found
