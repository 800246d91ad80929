"""Communities as text, JSON and a drawing: verdicts are said, and nothing is called a circuit before its verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np

from circuittest.find.communities import Community, Judgement, Proposal, structure
from circuittest.report.communities import COLUMNS, drawing, headline, rows, to_json, verdict
from circuittest.units import Layout

HEADS = Layout(n_layers=2, n_heads=4, n_kv_heads=4).units(("head",))


def proposal() -> Proposal:
    rng = np.random.default_rng(0)
    signal = np.repeat(rng.standard_normal((200, 2)), 4, axis=1) + 0.5 * rng.standard_normal((200, 8))
    judged = Judgement(
        "interfering",
        "it improves",
        {"interfering": 0.004, "load-bearing": 1.0, "none": 0.5},
        {"interfering": 0.008, "load-bearing": 1.0, "none": 0.5},
    )
    communities = (
        Community("C1", HEADS[:4], 3.21, 2.5, {"layer": 0.01, "sink": None}, rest=0.25, judgement=judged),
        Community("C2", HEADS[4:], 2.0, None, unjudged="4 heads, fewer than the 5 that are judged"),
    )
    return Proposal(
        communities,
        structure(signal, HEADS),
        2,
        {2: 0.9, 4: float("nan")},
        "stability",
        again={"ari": 1.0, "nmi": None},
        choices={"model": "m", "task": "t"},
    )


def test_rows_say_what_became_of_each() -> None:
    first, second = rows(proposal())
    assert len(first) == len(COLUMNS)
    assert first[:2] == ["C1", "L0.H0 L0.H1 L0.H2 L0.H3"]
    assert first[2:] == ["3.21", "2.5", "0.01", "–", "0.25", "interfering", "0.008"]
    assert second[-2:] == ["proposed; not judged: 4 heads, fewer than the 5 that are judged", "–"]
    both = replace(proposal().communities[0], outside=Judgement("undecided", "", {}, {}))
    assert verdict(both) == "interfering; outside the stratum undecided"


def test_the_headline_has_the_choice_of_k() -> None:
    text = headline(proposal())
    assert "m, t: ising on 8 heads" in text
    assert "2 clusters, by stability (adjusted Rand index: 2: 0.9, 4: –)" in text
    assert "ARI 1, NMI –" in text
    assert headline(replace(proposal(), communities=(), reason="no couplings: why")).endswith(
        "no couplings: why"
    )


def test_json_is_plain_and_undefined_is_none() -> None:
    data = json.loads(json.dumps(to_json(proposal()), allow_nan=False))
    assert data["scores"] == {"2": 0.9, "4": None}
    assert data["communities"][0]["judgement"]["adjusted"]["interfering"] == 0.008
    assert data["communities"][1]["judgement"] is None
    assert len(data["affinity"]) == len(data["units"]) == 8


def test_the_drawing_stands_alone_and_names_verdicts() -> None:
    found = ElementTree.fromstring(drawing(proposal()))
    title = found[0].text or ""
    assert "C1 interfering; C2 proposed" in title
    text = drawing(proposal(), page=False)
    assert text.count('class="family"') == 2
    assert "circuit" not in text
