"""Form and function side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from circuittest.cli import main
from circuittest.commands.roles import summary
from circuittest.errors import UsageError
from circuittest.find.roles.functions import form_and_function
from circuittest.lab import Lab
from circuittest.stats.labels import Label
from circuittest.tasks import TaskData
from circuittest.units import Unit
from tests.claims.test_role import data
from tests.helpers import role_heads


def head(name: str) -> Unit:
    return Unit.parse(name)


def told() -> TaskData:
    """Lists whose foil is not what the successor head says, judged by answer against foil."""
    made = data(15, 30)

    def foil(item: Any) -> Any:
        words = item.prompt_ids[1:6]
        free = next(w for w in range(1, 16) if w not in (*words, words[1] + 1, words[2]))
        other = tuple(free if token == words[2] else token for token in item.prompt_ids)
        return replace(item, counterfactual_ids=other, foil_ids=(free,), counterfactual_answer_ids=(free,))

    splits = {name: tuple(foil(item) for item in getattr(made, name)) for name in ("discover", "evaluate")}
    return replace(made, accuracy="candidates", **splits)


class Closed(Lab):
    """A lab whose closure is a rule on units; what it is asked is written down."""

    def closure(self, circuit: Any, **how: Any) -> Any:  # type: ignore[override]
        assert circuit.seen()
        self.asked.append((tuple(map(str, circuit.units)), how))
        if len(circuit.units) > 3:
            return SimpleNamespace(invalid="no matched control exists", label=None)
        label = "load-bearing" if {head("L1.H0"), head("L0.H0")} & set(circuit.units) else "none"
        p = {"load-bearing": 0.01, "none": 0.5}[label]
        return SimpleNamespace(
            invalid="",
            label=label,
            labels={"load-bearing": Label("supported", "", p)},
            value=1.0,
            interval=(0.5, 1.5),
        )


@pytest.fixture
def lab() -> Closed:
    made = Closed(role_heads.build(), told())
    made.asked = []
    return made


def test_heads_with_their_scores_effects_and_closure(lab: Closed) -> None:
    found = form_and_function(lab, ["induction", "previous-token", "copy"], carriers=0, single=True)
    rows = {str(row.unit): row for row in found.heads}
    assert list(rows) == ["L0.H0", "L1.H0", "L1.H1", "L1.H2"]
    assert rows["L1.H0"].roles == ("induction", "copy")
    assert rows["L1.H0"].scores["previous-token"] == pytest.approx(0, abs=1e-6)
    assert [rows[name].kind for name in rows] == ["both", "both", "form", "form"]
    # the answer's logit is the induction head's alone, and of that head nothing is left without the one before it
    for name in ("L0.H0", "L1.H0"):
        assert rows[name].effects["log_prob"].value > 0.5
        assert rows[name].effects["candidates"].value > 0.5  # answer and foil are level, but for rounding
    assert rows["L1.H1"].effects["log_prob"].value == pytest.approx(0, abs=1e-5)
    groups = {group.name: group for group in found.groups}
    assert [str(unit) for unit in groups["induction"].units] == ["L1.H0", "L1.H1"]
    assert groups["copy"].label == "load-bearing"
    assert groups["previous-token"].adjusted == pytest.approx(0.03)  # the smallest of three
    assert lab.asked[0] == (("L0.H0",), {"ablation": "zero", "controls": 100, "universe": "heads"})


def test_carriers_are_looked_at_whatever_their_scores(lab: Closed) -> None:
    found = form_and_function(lab, ["duplicate-token"], carriers=2)
    rows = {str(row.unit): row for row in found.heads}
    carriers = {name for name, row in rows.items() if row.carrier}
    assert len(carriers) == 2
    assert "L1.H0" in carriers
    assert rows["L0.H3"].roles == ("duplicate-token",)
    assert all(row.closure is None and row.kind in ("form", "") for row in rows.values())
    assert {group.name for group in found.groups} == {"duplicate-token", "no role"}


def test_roles_of_the_same_heads_are_one_group_and_invalid_ones_say_why(lab: Closed) -> None:
    found = form_and_function(lab, ["self", "copy-suppression", "first-token"], least=0.9, carriers=0)
    names = {group.name: group for group in found.groups}
    assert set(names) == {"self", "copy-suppression", "first-token"}
    assert names["first-token"].label == "invalid"
    assert names["first-token"].reason == "no matched control exists"
    assert names["first-token"].adjusted is None
    same = form_and_function(lab, ["induction", "answer-token"], least=0.9, carriers=0)
    assert [group.name for group in same.groups] == ["induction, answer-token"]


def test_roles_that_no_example_shows_are_told(lab: Closed) -> None:
    none = Closed(lab.model, data(repeat=False))
    none.asked = []
    found = form_and_function(none, ["induction"], carriers=0)
    assert found.heads == ()
    assert found.undefined == {"induction": "no token is repeated in 15 of 15 examples"}
    assert "no head scores 0.4" in summary(none, found)


def test_bad_asks(lab: Closed) -> None:
    for bad in ({"kinds": []}, {"least": 0.0}, {"least": 1.1}, {"carriers": -1}):
        with pytest.raises(UsageError):
            form_and_function(lab, **bad)
    with pytest.raises(UsageError, match="unknown role 'x'"):
        form_and_function(lab, ["x"])


def test_the_tables_of_the_command(lab: Closed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    found = form_and_function(lab, ["induction", "copy"], carriers=1, single=True)
    text = summary(lab, found)
    assert "induction 1.00" in text
    assert "both" in text
    assert "A score is a form." in text
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    row = next(row for row in plain["heads"] if row["head"] == "L1.H0")
    own = next(one for one in found.heads if one.unit == head("L1.H0"))
    assert row["is"] == "both"
    assert row["effects"]["log_prob"][0] == pytest.approx(own.effects["log_prob"].value)
    assert plain["groups"][0]["p_holm"] is not None


def test_the_command_on_a_zoo_model(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "roles --model zoo:mha --discover 20 --evaluate 20 --kinds induction --carriers 0 --controls 5 --json"
    )
    assert main(arguments.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["head"] for row in found["heads"]} == {"L2.H1", "L2.H5"}
    assert found["groups"][0]["group"] == "induction"
    assert found["choices"]["controls"] == 5
    assert main("roles --model zoo:mha --kinds nonsense".split()) == 2
    assert "unknown role 'nonsense'" in capsys.readouterr().err
