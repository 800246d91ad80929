"""`--circuit-store` and `--circuit-no-store`: which store a session uses, and what a second run and two workers make of it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from circuittest import Lab
from circuittest.store import Store

SPEC = """\
circuittest: 1
model: zoo:gqa
task: {name: ioi, discover: 40, evaluate: 40, seed: 0}
circuit: {method: eap, universe: heads, top: 20%, at: 95}
groups: {two: [L2.H1, L3.H0]}
claims:
  - reuse: {min: 0.05}
  - necessity: {min: 0.05, controls: 20}
  - coverage: {of: two, max: 0.9}
"""
TESTS = """
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.circuit(model="zoo:gqa", task="sva", discover=40, evaluate=40)
def test_sva(lab, seed):
    assert lab.necessity(lab.shared(top="20%", at=90), controls=20, seed=seed) >= -0.5
"""
#: Writes down what is measured; refuses to read weights where NO_WEIGHTS is set; KILL ends one worker at a table.
CONFTEST = """
import os, signal
from pathlib import Path

HERE = Path(__file__).parent

def pytest_configure():  # a fixture would not be there for specs
    from circuittest.lab import kept
    from circuittest.models import loading
    from circuittest.store import Store
    real = Store.put

    def put(self, key, arrays, meta=None):
        if meta["kind"] == "outcomes" and os.environ.get("KILL"):
            try:
                (HERE / "killed").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        with (HERE / "made.txt").open("a") as file:
            file.write(f"{key} {meta['kind']}\\n")
        return real(self, key, arrays, meta)

    Store.put = put
    if os.environ.get("NO_WEIGHTS"):
        def refused(*args, **kwargs):
            raise RuntimeError("weights were read")
        loading._read = refused
"""
PROBE = """
import pytest

@pytest.fixture(scope="session", autouse=True)
def probe(pytestconfig):
    from pytest_circuittest.storing import root_of
    (pytestconfig.rootpath / "root.txt").write_text(str(root_of(pytestconfig)))
"""


@pytest.fixture(scope="module", autouse=True)
def everything_imported():
    """`pytester` forgets what is imported while it is in use, and parts of torch cannot be loaded twice."""
    lab = Lab("zoo:gqa", "ioi", discover=4, evaluate=4)
    lab.outcomes([lab.shared(at=50).units])


# Which store


def root(suite, *args):
    (suite.path / "conftest.py").write_text(PROBE)
    suite.test("def test_nothing():\n    pass\n")
    suite.run(*args).assert_outcomes(passed=1)
    return (suite.path / "root.txt").read_text()


def test_by_default_it_is_in_the_users_cache(suite, monkeypatch):
    monkeypatch.delenv("CIRCUITTEST_STORE")
    monkeypatch.setenv("CIRCUITTEST_CACHE", str(suite.path / "cache"))
    assert root(suite) == str(suite.path / "cache" / "store")
    assert not (suite.path / "cache").exists()


def test_the_environment_names_one_or_none(suite, monkeypatch):
    monkeypatch.setenv("CIRCUITTEST_STORE", "s3://bucket/circuits")
    assert root(suite) == "s3://bucket/circuits"
    monkeypatch.setenv("CIRCUITTEST_STORE", "off")
    assert root(suite) == "None"


def test_the_ini_file_outweighs_the_environment(suite, monkeypatch):
    monkeypatch.setenv("CIRCUITTEST_STORE", "elsewhere")
    suite.pytester.makeini("[pytest]\ncircuit_store = kept\n")
    assert root(suite) == str(suite.path / "kept")
    suite.pytester.makeini("[pytest]\ncircuit_store = kept\ncircuit_no_store = true\n")
    assert root(suite) == "None"


def test_the_command_line_outweighs_the_ini_file(suite):
    suite.pytester.makeini("[pytest]\ncircuit_store = kept\n")
    assert root(suite, "--circuit-store", "mine") == str(suite.path / "mine")
    assert root(suite, "--circuit-store=memory://mine") == "memory://mine"
    assert root(suite, "--circuit-no-store") == "None"
    suite.pytester.makeini("[pytest]\ncircuit_no_store = true\n")
    assert root(suite, "--circuit-store", "mine") == str(suite.path / "mine")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--circuit-store=x", "--circuit-no-store"], "do not go together"),
        (["--circuit-store=test_suite.py"], "there is a file of that name"),
        (["--circuit-store="], "name a directory or a URL"),
    ],
)
def test_what_cannot_be_a_store_is_bad_usage(suite, args, message):
    suite.test("def test_nothing():\n    pass\n")
    result = suite.run(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}*"])


def test_a_url_without_fsspec_is_bad_usage(suite, monkeypatch):
    from pytest_circuittest import storing

    monkeypatch.setattr(storing, "find_spec", lambda name: None)
    suite.test("def test_nothing():\n    pass\n")
    result = suite.run("--circuit-store=s3://bucket")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*pip install circuittest[[]store[]]*"])


def test_choosing_a_store_imports_nothing_heavy():
    code = (
        "import sys; from circuittest.store.default import default_root; default_root(); "
        "print([name for name in ('numpy', 'fsspec', 'torch', 'filelock') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# What it is good for


@pytest.fixture
def real(suite, monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    suite.spec(SPEC)
    suite.test(TESTS)
    (suite.path / "conftest.py").write_text(CONFTEST)
    return suite


def run(suite, target, *args, store="kept"):
    """A run of its own: the result, the bytes of its records, and what it measured."""
    made = suite.path / "made.txt"
    made.unlink(missing_ok=True)
    options = [f"--circuit-store={store}"] if store else ["--circuit-no-store"]
    result = suite.pytester.runpytest_subprocess(
        f"--circuit-json={target}", "-p", "no:randomly", *options, *args
    )
    keys = made.read_text().splitlines() if made.exists() else []
    return result, (suite.path / target).read_bytes(), keys


@pytest.mark.slow
def test_a_second_run_reads_no_weights_says_cached_and_records_the_same(real, monkeypatch):
    first, one, made = run(real, "one.json")
    first.assert_outcomes(passed=6)
    assert "cached" not in "".join(line for line in first.outlines if "necessity " in line and "ioi" in line)
    assert len(made) >= 8
    monkeypatch.setenv("NO_WEIGHTS", "1")
    second, two, made = run(real, "two.json")
    second.assert_outcomes(passed=6)
    assert two == one
    assert made == []
    rows = [line for line in second.outlines if "supported" in line and "cached" in line]
    assert len(rows) == 6
    _, three, made = run(real, "three.json", "-n", "2")
    assert three == one
    assert made == []


@pytest.mark.slow
def test_two_workers_never_measure_the_same_twice(real):
    result, _, made = run(real, "two.json", "-n", "2", "--dist", "load")
    result.assert_outcomes(passed=6)
    assert len(made) >= 8
    assert len(made) == len(set(made))
    assert {line.split()[1] for line in made} >= {"model", "scores", "outcomes"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal here")
def test_the_store_of_a_killed_worker_is_used_by_the_next_run(real, monkeypatch):
    monkeypatch.setenv("KILL", "1")
    first, _, before = run(real, "one.json", "-n", "2")
    assert (real.path / "killed").exists()
    assert "crashed" in first.stdout.str()
    kept = Store(real.path / "kept")
    assert kept.info().entries == len(before)
    assert not any((real.path / "kept" / "tmp").iterdir())
    monkeypatch.delenv("KILL")
    second, bytes_of, after = run(real, "two.json", "-n", "2")
    second.assert_outcomes(passed=6)
    assert before
    assert not set(before) & set(after)  # the worker that took over may have measured everything by then
    assert {claim["verdict"] for claim in json.loads(bytes_of)["claims"]} == {"supported"}
