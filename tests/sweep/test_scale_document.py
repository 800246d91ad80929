"""The recipe of docs/scale.md: the job's script is bash, and shares hold every model of the series once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from circuittest.sweep import load_series

TEXT = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_job_is_bash() -> None:
    (script,) = blocks("bash")
    assert script.startswith("#!/bin/bash\n#SBATCH --array=0-15 ")
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_shares_hold_every_model_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = blocks("python")
    (tmp_path / "a.circuit.yaml").touch()
    names = [f"./m/step{place}" for place in range(154)]
    text = f"circuittest: 1\nmodels: {names}\nspecs: [a.circuit.yaml]\ntimes: {list(range(154))}\nresamples: 10\n"
    (tmp_path / "series.yaml").write_text(text)
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    shares = [load_series(tmp_path / f"share-{place}.yaml") for place in range(16)]
    assert len(list(tmp_path.glob("share-*.yaml"))) == 16  # the array of the job
    whole = load_series(tmp_path / "series.yaml")
    assert tuple(place for share in shares for place in share.places) == whole.places
    assert {share.resamples for share in shares} == {10}
