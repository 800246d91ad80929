"""Form and function over checkpoints: first neither, then a head that looks and moves nothing, then one that counts."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from circuittest.cli import main
from circuittest.commands import common
from circuittest.commands.roles import over_time
from circuittest.errors import UsageError
from circuittest.find.roles.course import Course, course
from circuittest.lab import Lab
from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module
from circuittest.stats.labels import Label
from circuittest.units import Unit
from tests.claims.test_role import data
from tests.find.roles.test_functions import told
from tests.helpers import role_heads

STEPS = ("step0", "step1", "step2", "step3")


def head(name: str) -> Unit:
    return Unit.parse(name)


def model(step: str) -> LoadedModel:
    """No roles; then they look where they will look, and move nothing; then both."""
    module: Any = role_heads.build().module
    first, second = (block.attn for block in module.transformer.h)
    size = role_heads.SIZE
    if step == "step0":  # queries of L0.H0, L1.H0 and L1.H1 that hardly ask for anything
        for attention, heads in ((first, 1), (second, 2)):
            attention.c_attn.weight[:, : heads * size] *= 1e-3
            attention.c_attn.bias[: heads * size] *= 1e-3
    if step in ("step0", "step1"):
        second.c_proj.weight[:size] = 0.0  # of L1.H0
    return from_module(module, role_heads.tokenizer(), name="roles")


class Closed(Lab):
    """A lab whose closure asks the logit of the answer alone: do these heads write to it?"""

    def closure(self, circuit: Any, **how: Any) -> Any:
        table = self.outcomes([(), circuit.units])
        lost = float((table.measure("log_prob")[0] - table.measure("log_prob")[1]).mean())
        label = "load-bearing" if lost > 0.1 else "none"
        return SimpleNamespace(
            invalid="",
            label=label,
            labels={"load-bearing": Label("supported", "", 0.01)},
            value=lost,
            interval=(lost - 1, lost + 1),
        )


@pytest.fixture(scope="module")
def found() -> Course:
    labs = {step: Closed(model(step), told()) for step in STEPS}
    return course(STEPS, labs.__getitem__, ["induction", "previous-token"], carriers=0)


def test_form_comes_before_function(found: Course) -> None:
    stages = found.stages("induction")
    assert [[str(unit) for unit in stage.heads] for stage in stages] == [[], *[["L1.H0", "L1.H1"]] * 3]
    assert [stage.bearing for stage in stages] == [False, False, True, True]
    assert stages[0].judged is None
    largest = [stage.best for stage in stages if stage.best is not None]
    assert largest[0][1] < 0.4
    assert largest[1][0] == head("L1.H0")
    assert largest[1][1] == pytest.approx(1.0, abs=1e-6)
    assert found.form_from("induction") == "step1"
    assert found.function_from("induction") == "step2"


def test_a_head_is_followed_from_the_first_checkpoint(found: Course) -> None:
    rows = found.heads()
    assert set(map(str, rows)) == {"L0.H0", "L1.H0", "L1.H1"}
    induction = rows[head("L1.H0")]
    assert [one.roles for one in induction] == [(), *[("induction",)] * 3]
    effects = [one.effects["log_prob"].value for one in induction]
    assert effects[:2] == pytest.approx([0, 0], abs=1e-6)
    assert min(effects[2:]) > 0.5
    idle = rows[head("L1.H1")]
    assert [one.effects["log_prob"].value for one in idle] == pytest.approx([0] * 4, abs=1e-5)


def test_what_is_lost_again_does_not_count_from_its_first_appearance() -> None:
    order = ("step2", "step1", "step3")
    labs = {step: Closed(model(step), told()) for step in order}
    found = course(order, labs.__getitem__, ["induction"], carriers=0)
    assert (found.form_from("induction"), found.function_from("induction")) == ("step2", "step3")
    ended = course(("step2", "step1"), labs.__getitem__, ["induction"], carriers=0)
    assert (ended.form_from("induction"), ended.function_from("induction")) == ("step2", None)


def test_as_json_and_as_text(found: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["models"] == list(STEPS)
    role = plain["roles"]["induction"]
    assert (role["form_from"], role["function_from"]) == ("step1", "step2")
    assert [stage["closure"] for stage in role["stages"]] == [None, "none", "load-bearing", "load-bearing"]
    assert role["stages"][2]["heads"] == ["L1.H0", "L1.H1"]
    assert plain["sides"][0]["choices"]["also"] == ["L0.H0", "L1.H0", "L1.H1"]
    text = over_time(Closed(model("step2"), told()), found)
    assert "load-bearing from" in text
    assert "induction 1.00; " in text


def test_bad_asks() -> None:
    labs = {step: Closed(model(step), told()) for step in ("step1", "step2")}
    for names in ([], ["step1", "step1"]):
        with pytest.raises(UsageError, match="each once"):
            course(names, labs.__getitem__)
    with pytest.raises(UsageError, match="no roles were asked for"):
        course(["step1"], labs.__getitem__, [])
    labs["other"] = Closed(model("step2"), data(15, 20))
    with pytest.raises(UsageError, match="other and step1 have different examples"):
        course(["step1", "other"], labs.__getitem__, ["induction"])


def test_the_command_with_several_models(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    labs = {step: Closed(model(step), told()) for step in ("step1", "step2")}
    monkeypatch.setattr(common, "lab_of", lambda _, name: labs[name])
    arguments = "roles --model step1 step2 --task lists --kinds induction --carriers 0".split()
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["models"] == ["step1", "step2"]
    assert found["roles"]["induction"]["function_from"] == "step2"
    assert main(arguments) == 0
    assert "load-bearing from" in capsys.readouterr().out
