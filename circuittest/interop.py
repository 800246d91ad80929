"""Circuits of other tools: the graph files of EAP-IG, which the circuit track of the MIB benchmark uses, too.

The format (https://github.com/hannamw/EAP-IG, `Graph.to_json`): ``cfg`` with the sizes, ``nodes`` and ``edges`` by name
(``input``, ``a3.h5``, ``m3``, ``logits``; ``a0.h3->a4.h1<q>``), each with ``in_graph``, edges with a ``score``, nodes
with one where they were scored, and with ``neurons`` where parts of their output were chosen. In it every query head
has keys and values of its own, also where heads share them (TransformerLens splits them).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from circuittest.circuit import Circuit
from circuittest.errors import CircuitError, UnitError, did_you_mean
from circuittest.units import Edge, Layout, Unit

_NODE = re.compile(r"input|logits|a(\d+)\.h(\d+)|m(\d+)")
_EDGE = re.compile(r"(.+)->([^<]+)(?:<([qkv])>)?")
KV = ("same", "any", "all")


@dataclass(frozen=True)
class Graph:
    """What a file holds.

    Attributes
    ----------
    circuit:
        The edges in the graph; its units, where the file has no edge in it.
    scores:
        Of every edge; of a key or value that heads share the sum over these heads, as gradients add up.
    unit_scores:
        Of the nodes that the file scores.
    """

    circuit: Circuit
    scores: Mapping[Edge, float]
    unit_scores: Mapping[Unit, float] = field(default_factory=dict)


def read_eap_ig(
    source: str | Path | Mapping[str, Any],
    *,
    layout: Layout | None = None,
    kv: Literal["same", "any", "all"] = "same",
    name: str | None = None,
) -> Graph:
    """Read a graph file of EAP-IG, as JSON.

    Parameters
    ----------
    source:
        The file, or its content.
    layout:
        Of the model, as ``lab.layout``. Without it every head is taken to have keys and values of its own.
    kv:
        What is made of query heads that share a key or value, and are not all in the graph: "same" refuses; "any" and
        "all" say how many of them it takes.
    name:
        Of the circuit; by default the file's.

    Raises
    ------
    CircuitError
        It is no such file, it belongs to another architecture, edges that are one here differ, or a node is in the
        graph with some of its output dimensions only.
    """
    if kv not in KV:
        raise CircuitError(f"unknown kv {kv!r}", "", did_you_mean(str(kv), KV))
    data, called = _load(source)
    sizes = _sizes(data["cfg"])
    layout = layout or Layout(sizes["n_layers"], sizes["n_heads"], sizes["n_heads"], sizes["parallel"])
    here = {"n_layers": layout.n_layers, "n_heads": layout.n_heads, "parallel": layout.parallel}
    if sizes != here:
        raise CircuitError(
            f"the graph {called} belongs to another architecture",
            f"its sizes are {sizes}, here {here}",
            "read it for the model that it was found on",
        )
    members: dict[Edge, list[bool]] = {}
    scores: dict[Edge, float] = {}
    for text, info in data["edges"].items():
        edge = _edge(text, layout)
        members.setdefault(edge, []).append(_inside(info))
        if isinstance(info, Mapping) and isinstance(info.get("score"), (int, float)):
            scores[edge] = scores.get(edge, 0.0) + float(info["score"])
    for edge, inside in members.items():
        if kv == "same" and any(inside) and not all(inside):
            raise CircuitError(
                f"the heads that read {edge} differ",
                f"{sum(inside)} of {len(inside)} are in the graph, and they share one {edge.slot}",
                "say which counts: kv='any' or kv='all'",
            )
    edges = [edge for edge, inside in members.items() if (all if kv == "all" else any)(inside)]
    nodes, unit_scores = _nodes(data["nodes"], called)
    units = [] if edges else [unit for unit in nodes if unit.kind in ("head", "mlp")]
    origin = {"method": "EAP-IG graph", "file": called}
    circuit = Circuit(tuple(units), tuple(edges), name or called, layout, origin)
    return Graph(circuit, scores, unit_scores)


def to_eap_ig(
    circuit: Circuit, *, width: int, layout: Layout | None = None, scores: Mapping[Edge, float] | None = None
) -> dict[str, Any]:
    """A circuit as the content of a graph file of EAP-IG; `json.dump` writes it.

    Parameters
    ----------
    circuit:
        Of edges, or of heads, KV groups, attention layers and MLPs: then every edge between members, from the input and
        to the logits is in the graph, as EAP-IG has it for nodes.
    width:
        Of the residual, which the format asks for (``lab.model.width``).
    layout:
        By default the circuit's own.
    scores:
        Of edges; a shared key's or value's is divided among its heads, so that reading it back gives it again. Those
        not given are 0.

    Raises
    ------
    CircuitError
        There is no layout, or a member that the format has no name for (neurons, experts).
    """
    layout = layout or circuit.layout
    if layout is None:
        raise CircuitError("the circuit has no layout", "the file says the sizes", "pass layout=lab.layout")
    units = set(layout.expand(circuit.units))
    for unit in sorted(units):
        if unit.kind not in ("head", "mlp"):
            raise CircuitError(
                f"{unit} has no name in EAP-IG", "its nodes are heads and MLPs", "leave it out"
            )
    wanted = set(circuit.edges)
    inside = units | {Unit("embed"), Unit("logits")}
    given = scores or {}
    edges: dict[str, dict[str, Any]] = {}
    touched: set[Unit] = {Unit("embed"), *units}
    for edge in layout.edges():
        readers = layout.parts(edge.target) if edge.target.kind == "kv" else (edge.target,)
        for reader in readers:
            kept = edge in wanted or (bool(units) and edge.source in inside and reader in inside)
            touched |= {edge.source, reader} if kept else set()
            slot = f"<{edge.slot}>" if edge.slot else ""
            edges[f"{_name(edge.source)}->{_name(reader)}{slot}"] = {
                "score": float(given.get(edge, 0.0)) / len(readers),
                "in_graph": kept,
            }
    nodes = {_name(unit): {"in_graph": unit in touched} for unit in (*layout.writers, Unit("logits"))}
    cfg = {
        "n_layers": layout.n_layers,
        "n_heads": layout.n_heads,
        "parallel_attn_mlp": layout.parallel,
        "d_model": int(width),
    }
    return {"cfg": cfg, "nodes": nodes, "edges": edges}


def _load(source: str | Path | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    if isinstance(source, Mapping):
        data, called = source, "graph"
    else:
        called = Path(source).stem
        try:
            data = json.loads(Path(source).read_text(encoding="utf-8"))
        except OSError as error:
            raise CircuitError(f"cannot read the graph {source}", error.strerror or str(error)) from error
        except ValueError as error:
            raise CircuitError(f"the graph {source} is not JSON", str(error)) from error
    parts = ("cfg", "nodes", "edges")
    if not isinstance(data, Mapping) or not all(isinstance(data.get(part), Mapping) for part in parts):
        raise CircuitError(f"{called} is no graph of EAP-IG", f"it lacks one of {', '.join(parts)}")
    return data, called


def _sizes(cfg: Mapping[str, Any]) -> dict[str, Any]:
    sizes = {key: cfg.get(key) for key in ("n_layers", "n_heads")}
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes.values()):
        raise CircuitError("the graph does not say its sizes", f"cfg holds {sizes}")
    return {**sizes, "parallel": bool(cfg.get("parallel_attn_mlp", False))}


def _nodes(listed: Mapping[str, Any], called: str) -> tuple[list[Unit], dict[Unit, float]]:
    """The nodes in the graph, and the scores of nodes; one that is not a number stands for none."""
    inside: list[Unit] = []
    scores: dict[Unit, float] = {}
    for text, info in listed.items():
        unit = _unit(text)
        score = info.get("score") if isinstance(info, Mapping) else None
        if isinstance(score, (int, float)) and not math.isnan(score):
            scores[unit] = float(score)
        if not _inside(info):
            continue
        inside.append(unit)
        if isinstance(info, Mapping) and not all(info.get("neurons", ())):
            raise CircuitError(
                f"the graph {called} holds {text} in part",
                f"{sum(map(bool, info['neurons']))} of its {len(info['neurons'])} output dimensions are in it, and "
                "circuits here have whole units",
                "export it at the level of nodes or edges",
            )
    return inside, scores


def _inside(info: Any) -> bool:
    """Older files say ``true``, newer ones ``{"in_graph": true}``."""
    return bool(info.get("in_graph", False)) if isinstance(info, Mapping) else bool(info)


def _unit(text: str) -> Unit:
    found = _NODE.fullmatch(text)
    if found is None:
        raise CircuitError(f"no node of EAP-IG: {text!r}", "nodes are input, a3.h5, m3 and logits")
    if found[1] is not None:
        return Unit("head", int(found[1]), int(found[2]))
    return (
        Unit("mlp", int(found[3])) if found[3] is not None else Unit("embed" if text == "input" else "logits")
    )


def _edge(text: str, layout: Layout) -> Edge:
    found = _EDGE.fullmatch(text)
    if found is None:
        raise CircuitError(f"no edge of EAP-IG: {text!r}", "edges are a0.h3->a4.h1<q>, input->m2, m0->logits")
    source, target, slot = _unit(found[1]), _unit(found[2]), found[3]
    try:
        layout.check([unit for unit in (source, target) if unit.kind not in ("embed", "logits")])
        if slot in ("k", "v"):
            target = layout.kv_group(target)
        return Edge(source, target, slot)
    except UnitError as error:
        raise CircuitError(f"the edge {text!r} cannot be read", error.what) from error


def _name(unit: Unit) -> str:
    if unit.kind == "head":
        return f"a{unit.layer}.h{unit.index}"
    return f"m{unit.layer}" if unit.kind == "mlp" else {"embed": "input"}.get(unit.kind, unit.kind)
