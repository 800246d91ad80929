"""Real pretrained models: they pass the doctor, and attribution ranks their IOI heads about as exact interventions do.

Minutes for each model. Skipped, with the reason, where its weights cannot be had (`tests.helpers.real`). The bounds
are loose: docs/attribution-quality.md has the numbers of one run.
"""

from __future__ import annotations

from typing import Any

import pytest

from circuittest.cli import main
from tests.helpers.quality import HALVES
from tests.helpers.real import PREFIXES, file_of, measured_apart

pytestmark = [pytest.mark.real_model, pytest.mark.slow, pytest.mark.timeout(3600)]
EXAMPLES = 40
ZERO, COUNTERFACTUAL = 0, 1


@pytest.fixture(scope="module", params=list(PREFIXES))
def name(request: pytest.FixtureRequest) -> str:
    file = file_of(request.param)
    if isinstance(file, str):
        pytest.skip(file)
    return str(request.param)


@pytest.fixture(scope="module")
def result(name: str) -> dict[str, Any]:
    return dict(measured_apart(name, "tests.helpers.quality", str(EXAMPLES)))


def test_the_doctor_passes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["doctor", "--model", str(file_of(name)), "--task", "ioi", "--evaluate", "40"]
    assert main([*command, "--prefix", PREFIXES[name]]) == 0
    said = capsys.readouterr().out
    assert "all checks passed" in said
    assert "competence" in said


def test_attribution_ranks_heads_about_as_exact_patching(result: dict[str, Any]) -> None:
    assert result["examples"] == EXAMPLES
    for label in ("eap, node", "eap-ig (5 steps), node"):
        spearman, top = result["rows"][label][COUNTERFACTUAL]
        assert spearman > 0.7, (label, spearman)
        assert top >= 7, (label, top)


def test_attribution_says_something_about_single_head_ablation(result: dict[str, Any]) -> None:
    for label in ("eap, edge-abs-sum", "eap-ig (5 steps), edge-abs-sum"):
        spearman, top = result["rows"][label][ZERO]
        assert spearman > 0.2, (label, spearman)
        assert top >= 2, (label, top)


def test_so_many_examples_rank_heads_reproducibly(result: dict[str, Any]) -> None:
    for spearman, top in result["rows"][HALVES]:
        assert spearman > 0.5
        assert top >= 5


def test_memory(result: dict[str, Any]) -> None:
    """Bars in GB for the whole process: weights in float32, preflight, EAP and EAP-IG down to edges."""
    assert result["peak"] < 3
