"""The file of a series: what it means, and mistakes with their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from circuittest.errors import SpecError
from circuittest.sweep import load_series


@pytest.fixture
def write(tmp_path: Path):
    (tmp_path / "a.circuit.yaml").touch()

    def write(text: str, head: str = "circuittest: 1\nspecs: [a.circuit.yaml]\n") -> Path:
        path = tmp_path / "series.yaml"
        path.write_text(head + text)
        return path

    return write


def test_models_keep_their_names_and_folders_lie_beside_the_file(write, tmp_path: Path) -> None:
    path = write(f"models: [zoo:gqa@step100, ./run/checkpoint-200, {tmp_path}/step_300]")
    series = load_series(path)
    assert series.models == ("zoo:gqa@step100", "./run/checkpoint-200", "step_300")
    assert series.places == (
        "zoo:gqa@step100",
        str(tmp_path / "run/checkpoint-200"),
        str(tmp_path / "step_300"),
    )
    assert series.specs == (tmp_path / "a.circuit.yaml",)
    assert series.times == (100, 200, 300)


def test_times_are_the_file_s_or_unknown(write) -> None:
    assert load_series(write("models: [a, b]\ntimes: [1, 2.5]\nhalf_life: 2.0")).times == (1, 2.5)
    assert load_series(write("models: [a-step1, b]")).times is None


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("models: [a, a]", (3, 13), "two models called 'a'"),
        ("models: [/x/a, /y/a]", (3, 16), "rename its folder"),
        ("models: []", (3, 9), "models"),
        ("models: [a]\nmodel: b", (4, 1), "model"),
        ("models: [a, b]\ntimes: [1]", (4, 8), "1 times for 2 models"),
        ("models: [a, b]\ntimes: [2, 2]", (4, 8), "not in the order"),
        ("models: [a, b]\ntimes: ['1', 2]", (4, 9), "times"),
        ("models: [step20, step3]", (3, 9), "not in the order"),
        ("models: [a]\nhalf_life: 0.0", (4, 12), "half_life"),
    ],
)
def test_mistakes_have_a_place(write, text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(SpecError, match=message) as raised:
        load_series(write(text))
    assert (raised.value.line, raised.value.column) == place


def test_specs_are_files_with_names_of_their_own(write, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no file 'b.circuit.yaml' beside"):
        load_series(write("models: [a]\nspecs: [b.circuit.yaml]", "circuittest: 1\n"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b/a.circuit.yaml").touch()
    with pytest.raises(SpecError, match="two specs"):
        load_series(write("models: [a]\nspecs: [a.circuit.yaml, b/a.circuit.yaml]", "circuittest: 1\n"))
    with pytest.raises(SpecError, match="a series is a mapping"):
        load_series(write("- a", ""))
