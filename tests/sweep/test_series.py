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


def test_runs_of_training_have_names(write) -> None:
    series = load_series(
        write(
            "models: {small: [s@step1, s@step2], large: [l@step1]}\nspecs: [a.circuit.yaml]",
            "circuittest: 1\n",
        )
    )
    assert series.models == ("s@step1", "s@step2", "l@step1")
    assert series.runs == (("small", range(2)), ("large", range(2, 3)))
    assert series.times == (1, 2, 1)
    by_run = "models: {small: [a, b], large: [c]}\ntimes: {small: [3, 4], large: [5]}\naverage_from: 4"
    assert load_series(write(by_run)).times == (3, 4, 5)
    assert load_series(write("models: {small: [a, b], large: [c]}\ntimes: {small: [3, 4]}")).times is None
    assert load_series(write("models: [a, b]")).runs == (("", range(2)),)


def test_what_is_measured_beside_the_claims(write) -> None:
    series = load_series(write("models: [a]"))
    assert (series.resamples, series.least, series.average_from) == (100, 0.4, None)
    assert series.roles[:2] == ("previous-token", "induction")
    series = load_series(write("models: [a]\nroles: [copy, copy]\nresamples: 0\nleast: 0.5"))
    assert (series.roles, series.resamples, series.least) == (("copy",), 0, 0.5)
    assert load_series(write("models: [a]\nroles: []")).roles == ()


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
        ("models: {x: [a], z: [b, a]}", (3, 25), "two models called 'a'"),
        ("models: {x: [a, b]}\ntimes: [1, 2]", (4, 8), "times are given as models are"),
        ("models: [a, b]\ntimes: {x: [1, 2]}", (4, 8), "times are given as models are"),
        ("models: {x: [a]}\ntimes: {z: [1]}", (4, 9), "no run 'z'"),
        ("models: {x: [a], z: [step2, step1]}", (3, 21), "not in the order"),
        ("models: {x: [a, b]}\ntimes: {x: [1]}", (4, 12), "1 times for 2 models"),
        ("models: [a]\nroles: [cpy]", (4, 9), "roles"),
        ("models: [a]\nresamples: -1", (4, 12), "resamples"),
        ("models: [a]\naverage_from: 3", (4, 15), "needs the times"),
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


def test_messages_speak_of_the_series(write, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="the series cannot be read"):
        load_series(tmp_path / "none.yaml")
    for text, message in (
        ("", "the series is empty"),
        ("a: 1\n---\nb: 2", "the series is one YAML document"),
    ):
        with pytest.raises(SpecError, match=message):
            load_series(write(text, ""))
    with pytest.raises(SpecError, match="the series holds plain values only"):
        load_series(write("models: !x [a]"))
