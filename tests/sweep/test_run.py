"""Running what is left, here and on local processes, some of which are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from circuittest.errors import CircuittestError, TaskError, UsageError
from circuittest.sweep import Series, load_series, run
from tests.helpers.sweep_work import calls, die_in_the_middle, write

SPEC = """\
circuittest: 1
model: zoo:gqa
task: {name: induction, discover: 12, evaluate: 40, seed: 0}
circuit: {method: eap, universe: heads, top: 20%, at: 90}
claims:
  - reuse: {min: 0.1}
  - sufficiency: {min: 0.5, skip: too slow here}
"""


@pytest.fixture
def series(tmp_path: Path):
    def series(*models: str) -> Series:
        for model in models:
            folder = tmp_path / model
            folder.mkdir(exist_ok=True)
            (folder / "config.json").write_text("{}")
            (folder / "model.safetensors").write_text(model)
        (tmp_path / "a.circuit.yaml").write_text(SPEC)
        names = ", ".join(f"./{model}" for model in models)
        path = tmp_path / "series.yaml"
        path.write_text(f"circuittest: 1\nmodels: [{names}]\nspecs: [a.circuit.yaml]\n")
        return load_series(path)

    return series


def names(results: list[dict]) -> list[str]:
    return [one["model"].removeprefix("./") for one in results]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_rerun_does_what_is_left(series, tmp_path: Path, workers: int) -> None:
    out = tmp_path / "out"
    told: list[tuple[str, bool]] = []
    how = {"device": "cpu", "work": write, "done": lambda one, found: told.append((one.model, found))}
    assert names(run(series("a", "b"), out, **how)) == ["a", "b"]
    first = next(out.iterdir())
    first.write_text(first.read_text()[:-5])  # torn
    told.clear()
    assert names(run(series("a", "b", "c"), out, workers=workers, **how)) == ["a", "b", "c"]
    assert len(calls(out)) == 2 + 2
    assert sorted(found for _, found in told) == [False, False, True]
    assert not list(out.glob(".*"))


def test_the_item_of_a_killed_worker_is_tried_once_more(series, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = run(series("a", "dies-once", "b"), out, device="cpu", workers=2, work=write)
    assert names(found) == ["a", "dies-once", "b"]
    assert sorted(calls(out)) == ["./a", "./b", "./dies-once", "./dies-once"]


def test_what_kills_twice_is_named_and_loses_nothing_else(series, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(
        CircuittestError, match=r"died twice over a\.circuit\.yaml on \./dies:.*fewer workers"
    ):
        run(series("dies", "a", "b"), out, device="cpu", workers=1, work=write)
    assert sorted(calls(out)) == ["./a", "./b", "./dies", "./dies"]
    assert len(list(out.iterdir())) == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_what_an_item_raises_is_raised(series, tmp_path: Path, workers: int) -> None:
    with pytest.raises(TaskError, match=r"no examples: there are none\. Write some"):
        run(series("a", "raises"), tmp_path / "out", device="cpu", workers=workers, work=write)
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_an_interrupted_run_keeps_what_is_finished(series, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(series("a", "interrupted", "b"), tmp_path / "out", device="cpu", work=write)
    assert len(list((tmp_path / "out").iterdir())) == 1


def kill_a_driver(series: Series, out: Path, where: str) -> None:
    command = [sys.executable, "-m", "tests.helpers.sweep_work", str(series.path), str(out), where]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("where", ["0", "2"])
def test_a_killed_driver_loses_no_finished_item(series, tmp_path: Path, where: str) -> None:
    out, told = tmp_path / "out", list[bool]()
    listed = series("a", "b", "c", "d")
    kill_a_driver(listed, out, where)
    finished = sorted(out.iterdir())
    assert 1 <= len(finished) < 4
    before = len(calls(out))
    found = run(listed, out, device="cpu", work=write, done=lambda one, there: told.append(there))
    assert names(found) == ["a", "b", "c", "d"]
    assert sum(told) == len(finished)
    assert len(calls(out)) == before + 4 - len(finished)


def test_without_ray_its_extra_is_named(series, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'circuittest\[ray\]'"):
        run(series("a"), tmp_path / "out", device="cpu", ray="local", work=write)


def test_on_ray_as_in_process(series, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install 'circuittest[ray]'")
    there, here = tmp_path / "there", tmp_path / "here"
    found = run(series("a", "dies-once", "b"), there, device="cpu", ray="local", work=write)
    assert names(found) == ["a", "dies-once", "b"]
    assert sorted(calls(there)) == ["./a", "./b", "./dies-once", "./dies-once"]
    assert run(series("a", "dies-once", "b"), here, device="cpu", work=write) == found
    assert {file.name: file.read_bytes() for file in there.iterdir()} == {
        file.name: file.read_bytes() for file in here.iterdir()
    }


def test_a_killed_driver_loses_no_item_that_ray_finished(series, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install 'circuittest[ray]'")
    out, told = tmp_path / "out", list[bool]()
    listed = series("a", "b", "c", "d")
    kill_a_driver(listed, out, "ray")
    finished = [json.loads(path.read_text())["model"] for path in out.iterdir()]
    assert finished
    found = run(
        listed, out, device="cpu", ray="local", work=write, done=lambda one, there: told.append(there)
    )
    assert names(found) == ["a", "b", "c", "d"]
    assert sum(told) >= len(finished)  # the driver's workers may have finished one more
    assert [calls(out).count(model) for model in finished] == [1] * len(finished)


@pytest.mark.slow
def test_models_on_ray_with_a_worker_killed_in_the_middle(tmp_path: Path) -> None:
    """Two workers; one dies while it measures, and the results are those in process, byte for byte."""
    ray = pytest.importorskip("ray", reason="pip install 'circuittest[ray]'")
    (tmp_path / "a.circuit.yaml").write_text(SPEC)
    path = tmp_path / "series.yaml"
    path.write_text("circuittest: 1\nmodels: ['zoo:gqa', 'zoo:gqa@destroyed-ioi']\nspecs: [a.circuit.yaml]\n")
    listed, there, here = load_series(path), tmp_path / "there", tmp_path / "here"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        run(listed, there, device="cpu", ray="auto", work=die_in_the_middle)
    finally:
        ray.shutdown()
    assert sorted(calls(there)) == ["zoo:gqa", "zoo:gqa@destroyed-ioi", "zoo:gqa@destroyed-ioi"]
    run(listed, here, device="cpu")
    assert {file.name: file.read_bytes() for file in there.iterdir()} == {
        file.name: file.read_bytes() for file in here.iterdir()
    }


@pytest.mark.slow
def test_results_are_the_same_bytes_in_process_and_on_two_processes(tmp_path: Path) -> None:
    (tmp_path / "a.circuit.yaml").write_text(SPEC)
    path = tmp_path / "series.yaml"
    path.write_text("circuittest: 1\nmodels: ['zoo:gqa', 'zoo:gqa@destroyed-ioi']\nspecs: [a.circuit.yaml]\n")
    for workers, out in ((0, "here"), (2, "there")):
        run(load_series(path), tmp_path / out, device="cpu", workers=workers)
    files = {file.name: file.read_bytes() for file in (tmp_path / "here").iterdir()}
    assert len(files) == 2
    assert files == {file.name: file.read_bytes() for file in (tmp_path / "there").iterdir()}
