"""What a claim took is in the table of the terminal, from workers, too, and in no record."""

from __future__ import annotations

import json

import pytest

SUITE = """
from dataclasses import replace

@pytest.mark.circuit(model="zoo:gqa", task="ioi")
@pytest.mark.parametrize("took", [(2.04, False), (0.1, True), None])
def test_x(lab, took):
    estimate = replace(lab.necessity(lab.shared()), cost=took)
    assert estimate >= 0.3
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_times_and_cached_tables(suite, workers):
    suite.test(SUITE)
    run = suite.run_fresh if workers else suite.run
    result = run("--circuit-json=r.json", *workers)
    ends = [line.rpartition("supported")[2].strip() for line in result.outlines if "  supported" in line]
    assert sorted(ends) == ["", "2.0 s", "cached"]
    for record in json.loads((suite.path / "r.json").read_text())["claims"]:
        assert "cost" not in json.dumps(record)
