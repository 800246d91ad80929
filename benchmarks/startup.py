"""What the plugin costs before anything is measured: ratios of collection times, all in one run.

    python benchmarks/startup.py [--repeats 7] [--files 500]

1. ``pytest --collect-only`` on a suite without circuit tests, with the plugin and without it.
2. The same of 500 spec files against 500 test files of one empty test each, with the plugin in both.

Each pair is run in turn, and the smallest time of each side counts: what the machine does beside it only adds. Times
are the processor's, user and system. Compiled modules are kept, as an installation keeps them: with
PYTHONDONTWRITEBYTECODE an editable installation compiles the plugin each time, and pytest's own modules never. Neither
side may load torch. Aims: 1.1 and 2.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

AIMS = {"empty suite, with the plugin / without": 1.1, "spec files / empty test files": 2.0}
SPEC = """\
circuittest: 1
model: zoo:gqa
task: {name: ioi, discover: 50, evaluate: 50}
circuit: {top: 20%, at: 95}
claims:
  - necessity: {min: 0.3}
"""
#: Fails where torch was loaded by the end of collection.
WITNESS = "import sys\n\ndef pytest_unconfigure(config):\n    assert 'torch' not in sys.modules, 'torch was loaded'\n"


def collect(folder: Path, *options: str) -> float:
    """Seconds of the processor that one collection takes, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        *options,
        ".",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder.parent / "compiled")
    began = os.times()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    ended = os.times()
    seconds = ended.children_user + ended.children_system - began.children_user - began.children_system
    if done.returncode not in (0, 5):
        raise SystemExit(done.stdout + done.stderr)
    return seconds


def smallest(repeats: int, *sides: tuple[Path, tuple[str, ...]]) -> list[float]:
    """The smallest time of each side; sides take turns."""
    times: list[list[float]] = [[] for _ in sides]
    for folder, options in sides:
        collect(folder, *options)  # compiles
    for _ in range(repeats):
        for own, (folder, options) in zip(times, sides, strict=True):
            own.append(collect(folder, *options))
    return [min(own) for own in times]


def suites(root: Path, files: int) -> tuple[Path, Path, Path]:
    """Folders of a suite of one plain test, of test files, and of specs."""
    found = []
    for name in ("empty", "tests", "specs"):
        folder = root / name
        folder.mkdir()
        (folder / "conftest.py").write_text(WITNESS)
        (folder / "pytest.ini").write_text("[pytest]\n")
        found.append(folder)
    (found[0] / "test_one.py").write_text("def test_one():\n    pass\n")
    for i in range(files):
        (found[1] / f"test_{i:04}.py").write_text("def test_one():\n    pass\n")
        (found[2] / f"s{i:04}.circuit.yaml").write_text(SPEC)
    return found[0], found[1], found[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--files", type=int, default=500)
    arguments = parser.parse_args()
    off = ("-p", "no:circuittest")
    with tempfile.TemporaryDirectory() as root:
        empty, tests, specs = suites(Path(root), arguments.files)
        with_it, without = smallest(arguments.repeats, (empty, ()), (empty, off))
        of_specs, of_tests = smallest(max(1, arguments.repeats // 2), (specs, ()), (tests, ()))
    ratios = dict(zip(AIMS, (with_it / without, of_specs / of_tests), strict=True))
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f} (aim {AIMS[name]:g})")
    print(
        f"seconds: {without:.2f} without, {with_it:.2f} with; {of_tests:.2f} test files, {of_specs:.2f} spec files"
    )


if __name__ == "__main__":
    main()
