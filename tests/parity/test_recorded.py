"""Per-example scores equal those that other tools gave once, on the same weights; `test_peers` runs the tools again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.parity import gpt2
from tests.parity.compare import difference

RECORDED = Path(__file__).parent / "recorded"
TOLERANCE = 1e-4


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


@pytest.mark.parametrize(("method", "choices"), [("eap", {}), ("eap-ig", {"steps": gpt2.STEPS})])
def test_edge_scores_are_those_of_the_published_code(method: str, choices: dict[str, Any]) -> None:
    assert difference(recorded("eap_ig")[method], level="edges", method=method, **choices) < TOLERANCE


def test_the_methods_differ_by_far_more_than_the_tolerance() -> None:
    assert difference(recorded("eap_ig")["eap-ig"], level="edges", method="eap") > 0.1


def test_node_scores_are_those_of_attribution_patching_in_transformer_lens() -> None:
    theirs = recorded("transformer_lens")
    assert difference(theirs, unit_score="node", kinds=("embed", "head", "mlp")) < TOLERANCE
