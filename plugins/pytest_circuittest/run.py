"""Running spec files through pytest, for `circuittest check`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_circuittest.specs import SUFFIX
from pytest_circuittest.summary import Collector, collector

#: What shells expect of a command that Ctrl-C stopped.
INTERRUPTED = 130


class _Witness:
    """Keeps the collector of the session, to read it when pytest has ended, and whether a user ended it."""

    found: Collector | None = None
    stopped = False

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # pytest ends a collection with errors by a subclass of it, and gives both the same exit code
        self.stopped = excinfo.type is KeyboardInterrupt

    def pytest_configure(self, config: pytest.Config) -> None:
        self.found = collector(config)


def run_specs(
    paths: Sequence[str | Path],
    *,
    model: str | Sequence[str] = (),
    device: str | None = None,
    dtype: str | None = None,
    json: str | Path | None = None,
    undecided: str | None = None,
    args: Sequence[str] = (),
) -> int:
    """Judge spec files as pytest does, with the exit codes of `circuittest check`.

    Parameters
    ----------
    paths:
        Spec files, or folders that hold some.
    model, device, dtype, json, undecided:
        As the pytest options ``--circuit-…`` of these names; `model` is NEW or OLD=NEW, or several.
    args:
        More arguments for pytest.

    Returns
    -------
    int
        0 all supported; 1 a claim refuted; 2 bad usage, a bad spec, or a failure that is no verdict (a model that
        cannot be loaded), whatever else was found; 3 undecided or invalid but none refuted; 130 stopped by Ctrl-C.
    """
    from circuittest.errors import UsageError

    for path in map(Path, paths):
        if not path.exists():
            raise UsageError(f"there is no spec {path}", "", "check the path")
        if path.is_file() and not path.name.endswith(SUFFIX):
            raise UsageError(f"{path} is no spec", f"its name does not end in {SUFFIX}", "rename it")
        if path.is_dir() and next(path.rglob(f"*{SUFFIX}"), None) is None:
            raise UsageError(
                f"there are no specs in {path}",
                f"names of specs end in {SUFFIX}",
                "draft one: circuittest init --model M --task T -o NAME.circuit.yaml",
            )
    witness = _Witness()
    options = [f"--circuit-model={one}" for one in ([model] if isinstance(model, str) else model)]
    named: dict[str, Any] = {"device": device, "dtype": dtype, "json": json, "undecided": undecided}
    options += [f"--circuit-{name}={value}" for name, value in named.items() if value is not None]
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        options += ["-p", "pytest_circuittest.plugin"]
    code = pytest.main([*(str(path) for path in paths), *options, *args], plugins=[witness])
    return INTERRUPTED if witness.stopped else check_code(int(code), witness.found)


def check_code(code: int, found: Collector | None) -> int:
    """The exit code of `circuittest check` for pytest's own code and what was collected."""
    from circuittest.report.exit_codes import BAD_USAGE, exit_code

    if found is None or code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return BAD_USAGE
    return BAD_USAGE if found.unexplained() else exit_code(found.records())
