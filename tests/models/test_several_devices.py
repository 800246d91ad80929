"""Models spread over devices by accelerate give the numbers of whole ones; see `tests.helpers.pretend`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers import tiny

#: The first for every change; the others show what differs between architectures.
QUICK = ("gpt2",)


def compared(name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.helpers.several_devices", name]
    return subprocess.run(command, capture_output=True, text=True, check=False)


#: transformers makes its mask on the first device, and its blocks on others fail on padding.
ALONE = ("falcon_alibi",)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in tiny.EVERY
        if name not in ALONE
    ],
)
def test_spread_models_give_the_numbers_of_whole_ones(name: str) -> None:
    found = compared(name)
    assert found.returncode == 0, found.stdout + found.stderr[-2000:]
    assert found.stdout.startswith(f"{name}: node scores")
