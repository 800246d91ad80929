"""`correction: holm` in a spec that pytest runs: a verdict is the same alone, together and on workers."""

from __future__ import annotations

import json

from circuittest.stats import ProportionInference

# alone p = 0.021; the family of three needs 0.0125 for the second smallest p
THRESHOLD = 0.259
SPEC = f"""\
circuittest: 1
model: zoo:gqa
task: ioi
circuit: {{top: 20%, at: 95}}
correction: holm
claims:
  - necessity: {{min: 0.3}}
  - coverage: {{min: {THRESHOLD}}}
  - reuse: {{min: 0.03}}
"""


def test_p_values_are_where_the_test_needs_them() -> None:
    p = sorted(
        ProportionInference(k, 200).p_value(">=", t) for k, t in ((150, 0.3), (65, THRESHOLD), (10, 0.03))
    )
    assert p[0] < 1e-6
    assert 0.0125 < p[1] < 0.025 < p[2]


def test_the_family_is_the_file_and_not_what_is_run(suite) -> None:
    suite.spec(SPEC)
    together = {record["claim"]: record for record in suite.records()}
    assert {claim: record["verdict"] for claim, record in together.items()} == {
        "necessity": "supported",
        "coverage": "undecided",
        "reuse": "undecided",
    }
    assert together["coverage"]["details"]["correction"]["claims"] == 3
    assert "Holm" in together["coverage"]["reason"]
    (alone,) = suite.records("ioi.circuit.yaml::coverage")
    assert json.dumps(alone) == json.dumps(together["coverage"])


def test_without_it_each_claim_stands_alone(suite) -> None:
    suite.spec(SPEC.replace("correction: holm\n", ""))
    found = {record["claim"]: record["verdict"] for record in suite.records()}
    assert found["coverage"] == "supported"


def test_workers_agree(suite) -> None:
    suite.spec(SPEC)
    together = suite.records()
    suite.run_fresh("-n2", "--circuit-json=workers.json")
    found = json.loads((suite.path / "workers.json").read_text(encoding="utf-8"))["claims"]
    assert found == together
