"""What an import costs: nothing heavy before a circuit test needs it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest

import circuittest

HEAVY = ("torch", "transformers", "tokenizers", "scipy", "numpy", "pydantic", "yaml", "rich", "hypothesis")


def loaded_after(code: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after running `code`."""
    script = f"{code}\nimport sys\nsys.stdout.write(' '.join(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import circuittest", ()),
        ("import circuittest; circuittest.__version__", ()),
        ("from circuittest import Unit, Edge, Layout, Circuit, CircuittestError", ()),
        ("import circuittest.cli", ()),
        ("import pytest_circuittest.plugin", ()),
        ("import hypothesis_circuittest", ()),
        ("from circuittest import Lab", ("numpy", "scipy")),
        ("from circuittest import Estimate, Verdict, Undecided, InvalidClaim", ("numpy", "scipy")),
    ],
)
def test_import_loads_nothing_heavy(code: str, allowed: tuple[str, ...]) -> None:
    assert not loaded_after(code) & (set(HEAVY) - set(allowed))


def test_importing_hypothesis_loads_nothing_of_ours() -> None:
    loaded = loaded_after("import hypothesis, hypothesis.strategies as st; st.integers().example")
    assert not {name for name in loaded if name.split(".")[0] in ("circuittest", "hypothesis_circuittest")}


def test_every_public_name_is_there() -> None:
    for name in circuittest.__all__:
        assert getattr(circuittest, name) is not None
        assert name in dir(circuittest)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Labb'"):
        circuittest.Labb


def test_version_is_the_distribution_s() -> None:
    assert circuittest.__version__ == version("circuittest")


def test_entry_points() -> None:
    assert [e.value for e in entry_points(group="pytest11", name="circuittest")] == [
        "pytest_circuittest.plugin"
    ]
    assert [e.value for e in entry_points(group="console_scripts", name="circuittest")] == [
        "circuittest.cli:main"
    ]
