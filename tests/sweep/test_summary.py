"""A series' figures from hand tables: runs, sizes, similarities with their bands, and models of several sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from circuittest.sweep import Series, scales, summary

SETS = {"members": ["a", "b", "c"], "undefined": ""}


def circuit(members: str, *samples: str, **more: object) -> dict:
    listed = list(members)
    found = {
        "members": listed,
        "units": listed,
        "possible": 10,
        "edges": None,
        "of_edges": None,
        "nodes": len(listed),
        "of_nodes": 20,
        "heads": listed,
        "layout": [2, 5, 5, False],
        "given": False,
        "empty": "",
        "resampled": {**SETS, "sets": [["abc".index(one) for one in part] for part in samples]},
    }
    return {**found, **more}


def result(model: str, found: dict | None, *, parameters: int = 10, estimate: float | None = None) -> dict:
    record = {
        "id": f"s.yaml::concentration[{model}]",
        "verdict": "supported",
        "label": None,
        "estimate": estimate,
        "interval": None,
        "reason": "",
    }
    return {
        "model": model,
        "parameters": parameters,
        "accuracy": 0.9,
        "absent": "" if found else "no headroom",
        "behaviour": {"log_prob": -1.0},
        "roles": {},
        "circuit": found,
        "records": [record] if estimate is not None else [],
    }


def series(runs: dict[str, list[str]], times: list[float] | None = None, **more: object) -> Series:
    models = [model for listed in runs.values() for model in listed]
    first, places = 0, []
    for run, listed in runs.items():
        places.append((run, range(first, first + len(listed))))
        first += len(listed)
    given = None if times is None else tuple(times)
    return Series(
        Path("x"), tuple(models), tuple(models), (Path("s.yaml"),), given, None, tuple(places), **more
    )


def test_bands_of_neighbours_and_of_what_is_smoothed() -> None:
    results = [
        result("m1", circuit("ab", "ab", "a")),
        result("m2", circuit("ab", "ab", "b")),
        result("m3", circuit("bc", "bc", "b")),
    ]
    (found,) = summary(series({"": ["m1", "m2", "m3"]}, [0, 1, 3]), results)
    rows = found["rows"]
    # sample by sample: ab|ab 1, a|b 0; then ab|bc 1/3, b|b 1
    assert [row["to_previous_band"] for row in rows] == [None, [0.0, 1.0], [pytest.approx(1 / 3), 1.0]]
    # means of the last mean and the value: (1 + 1/3)/2, (0 + 1)/2
    assert rows[2]["smoothed_band"] == pytest.approx([1 / 2, 2 / 3])
    # two half-lives (of 1.5, the median spacing: 2/1.5) keep 2^(-4/3)
    kept = 2 ** (-4 / 3)
    assert rows[2]["smoothed_in_time_band"] == pytest.approx(
        sorted([kept * 1 + (1 - kept) / 3, kept * 0 + (1 - kept) * 1])
    )
    assert rows[0]["to_final_band"] == pytest.approx([0.0, 1 / 3])
    assert rows[2]["to_final_band"] == [1.0, 1.0]
    # other samples within m2 (ab|b) 1/2, within m3 (bc|b) 1/2; across: ab|b, b|bc
    assert (rows[2]["same"], rows[2]["apart"]) == (0.5, 0.5)
    assert (rows[0]["same"], rows[0]["apart"]) == (None, None)


def test_where_circuits_cannot_be_compared_nothing_is_said() -> None:
    results = [
        result("m1", circuit("ab", "ab")),
        result("m2", circuit("ab", "ab", layout=[1, 10, 5, False])),
        result("m3", circuit("ab", "ab", given=True, layout=[1, 10, 5, False])),
        result("m4", None),
        result("m5", circuit("ab", "ab")),
        result("m6", circuit("ab", resampled={"members": [], "sets": [], "undefined": "why"})),
        result("m7", circuit("")),
    ]
    (found,) = summary(series({"": [f"m{i}" for i in range(1, 8)]}), results)
    rows = found["rows"]
    assert [row["to_previous"] for row in rows] == [None] * 5 + [1.0, None]
    assert all(row["to_previous_band"] is row["same"] is row["apart"] is None for row in rows)
    assert [row["smoothed"] for row in rows] == [None] * 5 + [1.0, None]
    assert all(row["to_final"] is row["smoothed_in_time"] is None for row in rows)
    assert [row["nodes_share"] for row in rows] == [0.1, 0.1, 0.1, None, 0.1, 0.1, 0.0]
    assert (found["appears_at"], found["present_from"]) == ("m1", "m5")


def test_runs_are_apart() -> None:
    results = [
        result("a1", circuit("ab")),
        result("a2", circuit("ab")),
        result("b1", circuit("bc")),
        result("b2", None),
    ]
    first, second = summary(series({"a": ["a1", "a2"], "b": ["b1", "b2"]}), results)
    assert (first["spec"], first["run"], second["run"]) == ("s.yaml", "a", "b")
    assert [row["to_previous"] for row in second["rows"]] == [None, None]
    assert [row["to_final"] for row in first["rows"]] == [1.0, 1.0]
    assert (first["present_from"], second["present_from"], second["appears_at"]) == ("a1", None, "b1")


def test_models_of_several_sizes() -> None:
    edges = {"edges": 3, "of_edges": 30}
    results = [
        result("s", circuit("a", **edges), parameters=10, estimate=4.0),
        result("m", circuit("ab", **edges), parameters=100, estimate=3.0),
        result("l", circuit("abc", **edges, of_nodes=60), parameters=1000, estimate=2.0),
    ]
    listed = series({"": ["s", "m", "l"]})
    found = {one["quantity"]: one for one in scales(listed, summary(listed, results))}
    assert list(found) == ["edges", "edges_share", "nodes", "nodes_share", "concentration"]
    assert (found["nodes"]["slope"], found["concentration"]["slope"]) == pytest.approx((1.0, -1.0))
    assert [point["value"] for point in found["nodes_share"]["points"]] == [0.05, 0.1, 0.05]
    assert "the same" in found["edges"]["undefined"]
    alike = [result(name, circuit("a")) for name in "sml"]
    assert scales(listed, summary(listed, alike)) == []


def test_a_run_is_one_point_the_mean_of_its_checkpoints() -> None:
    sizes = {"s": ("a", "ab"), "m": ("ab", "ab"), "l": ("abc", "abc")}
    runs = {run: [f"{run}@1", f"{run}@2", f"{run}@3"] for run in sizes}
    results = [
        result(f"{run}@{i}", None if one is None else circuit(one), parameters=10 ** (1 + place))
        for place, (run, listed) in enumerate(sizes.items())
        for i, one in enumerate((None, *listed), 1)
    ]
    for since, first in ((None, 1.5), (3, 2.0)):
        named = series(runs, [1, 2, 3] * 3, average_from=since)
        found = {one["quantity"]: one for one in scales(named, summary(named, results))}
        points = found["nodes"]["points"]
        assert [(p["model"], p["value"]) for p in points] == [("s", first), ("m", 2.0), ("l", 3.0)]
        assert "edges" not in found
