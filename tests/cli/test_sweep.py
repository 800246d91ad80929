"""``circuittest sweep``: its tables, its JSON, and what comes to an end before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circuittest.cli import main
from circuittest.sweep import driver as running


def circuit(*members: str) -> dict:
    return {
        "members": list(members),
        "units": list(members),
        "possible": 10,
        "edges": None,
        "of_edges": None,
        "nodes": len(members),
        "of_nodes": 12,
        "heads": list(members),
        "layout": [2, 5, 5, False],
        "given": False,
        "empty": "",
        "resampled": {"members": list(members), "sets": [list(range(len(members)))] * 20, "undefined": ""},
    }


def roles(**heads: float) -> dict:
    scores = {f"L0.{head}": [score, 0.01] for head, score in heads.items()}
    return {"copy": {"heads": scores, "n": 9, "undefined": ""}}


def record(model: str, verdict: str, estimate: float | None) -> dict:
    return {
        "id": f"a.circuit.yaml::necessity[{model}]",
        "verdict": verdict,
        "label": None,
        "estimate": estimate,
        "interval": None,
        "reason": "",
    }


ROLES = {
    "m@step1": roles(H0=0.0, H1=0.1, H2=0.0),
    "m@step2": roles(H0=0.9, H1=0.1, H2=0.0),
    "m@step3": roles(H0=0.1, H1=0.8, H2=0.0),
    "m@step5": roles(H0=0.1, H1=0.9, H2=0.5),
}
RESULTS = {
    "m@step1": (0.1, "no headroom", None, "invalid", None),
    "m@step2": (0.8, "", circuit("L0.H0", "L0.H1"), "supported", 0.5),
    "m@step3": (0.9, "", circuit("L0.H1", "L0.H2"), "refuted", 0.1),
    "m@step5": (0.9, "", circuit("L0.H1", "L0.H2", "L1.H0"), "supported", 0.6),
}


@pytest.fixture
def series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A series whose results are known, without models."""
    monkeypatch.setenv("CIRCUITTEST_STORE", "off")
    monkeypatch.chdir(tmp_path)

    def item(spec, model, place, **_):
        return running.Item(str(spec), model, place, f"key-of-{model}", "cpu", "float32", 1, None)

    def work(one, folder):
        accuracy, absent, found, verdict, estimate = RESULTS[one.model]
        result = {
            "key": one.key,
            "spec": "a.circuit.yaml",
            "model": one.model,
            "parameters": 10 ** int(one.model[-1]),
            "behaviour": {"log_prob": -1.0},
            "roles": ROLES[one.model],
            "accuracy": accuracy,
            "absent": absent,
            "circuit": found,
            "records": [record(one.model, verdict, estimate)],
        }
        Path(folder).mkdir(exist_ok=True)
        running.result_path(Path(folder), one).write_text(json.dumps(result))
        return result

    monkeypatch.setattr(running, "item", item)
    monkeypatch.setitem(running.run.__kwdefaults__, "work", work)
    (tmp_path / "a.circuit.yaml").touch()
    path = tmp_path / "series.yaml"
    path.write_text(f"circuittest: 1\nmodels: {list(RESULTS)}\nspecs: [a.circuit.yaml]\n")
    return path


def test_the_table_says_what_holds_from_when(
    series: Path, capsys: pytest.CaptureFixture, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["sweep", "series.yaml"]) == 0
    text = capsys.readouterr().out
    rows = [line.split() for line in text.splitlines() if line.startswith("m@step")]
    tables = [line.split()[1] for line in text.splitlines() if line.startswith("model ")]
    assert tables == ["accuracy", "previous", "copy"]
    assert rows[0] == ["m@step1", "0.10", *"–––––", "–", "–"]
    assert rows[1][:6] == ["m@step2", "0.80", "2", "20.0%", "0.25", "–"]
    assert rows[3] == ["m@step5", "0.90", "3", "30.0%", "1.00", "0.67", "0.14", "0.50", "yes", "0.60"]
    assert "the behaviour is there from m@step2 on" in text
    assert "necessity holds from m@step5 on" in text
    assert "m@step1: no headroom" in text
    assert rows[7] == ["m@step5", "0.67", "[0.67,", "0.67]", "1.00", "0.67", *rows[7][6:]]
    assert rows[11] == ["m@step5", "1.40", "(2)"]
    assert "copy: a head has it first at m@step2, and always from there on" in text
    assert "copy: L0.H0 lost it at m@step3 (0.90 → 0.10); L0.H1 (0.10 → 0.80) took over" in text
    assert "4 items, 0 of them done before" in text
    assert main(["sweep", "series.yaml"]) == 0
    assert "4 items, 4 of them done before" in capsys.readouterr().out


def test_json_holds_what_the_table_does_and_more(series: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["sweep", "series.yaml", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (found,) = data["sweep"]
    assert (found["spec"], found["present_from"]) == ("a.circuit.yaml", "m@step2")
    assert found["holds_from"] == {"necessity": "m@step5"}
    rows = found["rows"]
    assert [row["time"] for row in rows] == [1, 2, 3, 5]
    assert [row["to_final"] for row in rows] == [None, 1 / 4, 2 / 3, 1.0]
    assert [row["to_previous"] for row in rows] == [None, None, 1 / 3, 2 / 3]
    assert [row["smoothed"] for row in rows] == pytest.approx([None, None, 1 / 3, 1 / 2])
    # two half-lives (the median spacing, 1) between the last two
    assert rows[3]["smoothed_in_time"] == pytest.approx(1 / 4 * 1 / 3 + 3 / 4 * 2 / 3)
    assert rows[3]["chance"] == pytest.approx(0.6 / 4.4)
    assert [one["verdict"] for one in data["claims"]] == ["invalid", "supported", "refuted", "supported"]


def test_models_of_several_sizes_are_set_against_their_parameters(
    series: Path, capsys: pytest.CaptureFixture, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["sweep", "series.yaml"]) == 0
    text = capsys.readouterr().out
    # 2, 2 and 3 nodes with 10^2, 10^3 and 10^5 parameters
    row = next(line.split() for line in text.splitlines() if line.startswith("nodes "))
    assert row[:5] == ["nodes", "3", "+0.357", "0.94", "0.87"]
    assert main(["sweep", "series.yaml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scales"]
    assert [one["quantity"] for one in found] == ["nodes", "nodes_share", "necessity"]
    assert found[2]["points"][0] == {"model": "m@step2", "parameters": 100, "value": 0.5}


def test_a_page_with_the_tables_and_curves(series: Path, capsys: pytest.CaptureFixture, tmp_path) -> None:
    assert main(["sweep", "series.yaml", "--html", "out.html", "--json", "out.json"]) == 0
    page = (tmp_path / "out.html").read_text()
    assert "took over" in page
    assert page.count("<svg") == 6 + 3  # behaviour, two similarities, sizes, two of roles; three quantities
    assert "m@step2" in capsys.readouterr().out
    assert {"sweep", "scales", "claims"} <= set(json.loads((tmp_path / "out.json").read_text()))
    assert main(["sweep", "series.yaml", "--html", "out.html"]) == 0
    assert (tmp_path / "out.html").read_text() == page
    assert main(["sweep", "series.yaml", "--html", "series.yaml"]) == 2
    assert "is not overwritten" in capsys.readouterr().err


def test_mistakes_are_said_with_their_place(series: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["sweep", "series.yaml", "--ray", "auto", "--workers", "2"]) == 2
    assert "--workers and --ray" in capsys.readouterr().err
    series.write_text("circuittest: 1\nmodels: [a]\nspecs: [b.yaml]\n")
    assert main(["sweep", "series.yaml"]) == 2
    assert "series.yaml:3:9" in capsys.readouterr().err
    assert main(["sweep", "none.yaml"]) == 2


def test_an_interrupted_sweep_exits_with_130(series: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(one, folder):
        raise KeyboardInterrupt

    monkeypatch.setitem(running.run.__kwdefaults__, "work", work)
    assert main(["sweep", "series.yaml"]) == 130
