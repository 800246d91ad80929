"""The tools themselves, run on the model and prompts of `gpt2`, against ours.

CIRCUITTEST_PARITY_EAP_IG: a Python with transformer-lens below 4, and a checkout of hannamw/EAP-IG, apart by ":".
CIRCUITTEST_PARITY_TRANSFORMER_LENS: a Python with transformer-lens 4.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.parity import gpt2
from tests.parity.compare import difference
from tests.parity.test_recorded import TOLERANCE

pytestmark = pytest.mark.parity
ROOT = Path(__file__).parents[2]


def run(variable: str, module: str, out: Path) -> Any:
    given = os.environ.get(variable)
    if not given:
        pytest.skip(f"{variable} is not set")
    python, *arguments = given.split(":")
    command = [python, "-m", f"tests.parity.{module}", *arguments, str(out)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    return json.loads(out.read_text())


def test_eap_ig(tmp_path: Path) -> None:
    theirs = run("CIRCUITTEST_PARITY_EAP_IG", "record_eap_ig", tmp_path / "out.json")
    assert difference(theirs["eap"], level="edges") < TOLERANCE
    ig = difference(theirs["eap-ig"], level="edges", method="eap-ig", steps=gpt2.STEPS)
    assert ig < TOLERANCE


def test_transformer_lens(tmp_path: Path) -> None:
    theirs = run("CIRCUITTEST_PARITY_TRANSFORMER_LENS", "record_transformer_lens", tmp_path / "out.json")
    assert difference(theirs, unit_score="node", kinds=("embed", "head", "mlp")) < TOLERANCE
