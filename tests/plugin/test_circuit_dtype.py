"""`--circuit-dtype` and its ini twin."""

from __future__ import annotations

import pytest


def test_device_and_dtype_come_from_the_command_line_before_the_ini(suite):
    suite.test("@pytest.mark.circuit(model='a', task='ioi')\ndef test_x(lab): pass\n")
    suite.run("--circuit-device=cuda:1", "--circuit-dtype=float64").assert_outcomes(passed=1)
    suite.pytester.makeini("[pytest]\ncircuit_device = mps\ncircuit_dtype = bfloat16\n")
    suite.run().assert_outcomes(passed=1)
    suite.run("--circuit-dtype=float16").assert_outcomes(passed=1)
    assert suite.loads == ["a cuda:1 float64", "a mps bfloat16", "a mps float16"]


def test_specs_obey(suite):
    suite.spec()
    suite.run("--circuit-dtype=float64").assert_outcomes(passed=1)
    assert [load.split()[-1] for load in suite.loads] == ["float64"]


@pytest.mark.parametrize("ini", [False, True])
def test_an_unknown_dtype_is_a_usage_error(suite, ini):
    if ini:
        suite.pytester.makeini("[pytest]\ncircuit_dtype = float8\n")
    result = suite.run(*(() if ini else ("--circuit-dtype=float8",)))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "float8: use one of float32, float64" in result.stderr.str()
