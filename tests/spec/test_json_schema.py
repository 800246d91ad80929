"""The schema for editors accepts what `load_spec` accepts and refuses what it refuses."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from circuittest.claims import claim_kinds
from circuittest.cli import main
from circuittest.errors import SpecError
from circuittest.spec import load_spec
from circuittest.spec.json_schema import json_schema

GOOD: dict[str, Any] = {
    "circuittest": 1,
    "model": "zoo:gqa",
    "task": {"name": "ioi", "discover": 60},
    "circuit": {"universe": "heads", "top": "20%", "at": 95},
    "groups": {"two": ["L2.H1", "L3.H0"]},
    "claims": [
        {"reuse": {"min": 0.2}},
        {"necessity": {"above": 0.1, "controls": 20, "match": "layer", "of": "two"}},
        {"specificity": {"against": ["sva"], "above": 0, "id": "own"}},
        {"closure": {"is": "load-bearing"}},
        {"stability": {"partition": "template", "min": 0.5}},
    ],
}
SPECS = sorted(Path(__file__).parents[2].glob("example_suites/*/*.circuit.yaml"))


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """`GOOD` with one value replaced."""
    data = copy.deepcopy(GOOD)
    part: Any = data
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = to
    return data


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def loads(data: Any, path: Path) -> bool:
    path.write_text(yaml.safe_dump(data))
    try:
        load_spec(path)
    except SpecError:
        return False
    return True


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_the_example_suites_are_valid(path: Path, validator: Any) -> None:
    validator.validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    ("data", "fine"),
    [
        (GOOD, True),
        (changed("model", to=["zoo:gqa", "zoo:mha"]), True),
        (changed("task", to="ioi"), True),
        (changed("circuit", to={"units": ["L0.H1"]}), True),
        (
            changed("circuit", to={"method": "minimal", "faithfulness": 0.9, "cap": "2%", "level": "edges"}),
            True,
        ),
        (changed("circuit", to={"method": "minimal", "top": "20%"}), False),
        (changed("circuit", to={"method": "minimal", "faithfulness": 1.0}), False),
        (changed("circuit", to={"faithfulness": 0.8}), False),
        (changed("model", to=[]), False),
        (changed("model", to=3), False),
        (changed("circuittest", to=2), False),
        (changed("task", "discovery", to=3), False),
        (changed("task", "discover", to=0), False),
        (changed("circuit", "at", to=101), False),
        (changed("circuit", "top", to="200%"), False),
        (changed("circuit", "top", to="0%"), False),
        (changed("task", "prefix", to=None), False),
        (changed("correction", to=None), False),
        (changed("claims", 1, "necessity", "controls", to=20_000), False),
        (changed("claims", 1, "necessity", "universe", to=None), False),
        (changed("claims", 1, "necessity", "seed", to=-1), False),
        (changed("groups", "2 x", to=["L0.H1"]), False),
        (changed("claims", to=[]), False),
        (changed("claims", 0, to={"reuse": {"min": 0.2}, "necessity": {"min": 0.2}}), False),
        (changed("claims", 0, to={"resue": {"min": 0.2}}), False),
        (changed("claims", 0, to={"reuse": {}}), False),
        (changed("claims", 0, to={"reuse": {"min": 0.2, "max": 0.4}}), False),
        (changed("claims", 0, to={"reuse": {"min": "0.2"}}), False),
        (changed("claims", 1, "necessity", "controls", to="many"), False),
        (changed("claims", 1, "necessity", "match", to="layers"), False),
        (changed("claims", 2, "specificity", to={"above": 0}), False),
        (changed("claims", 4, "stability", "of", to="two"), False),
        (changed("claims", 3, "closure", "is", to="load bearing"), False),
        (changed("claims", 0, to={"reuse": {"is": "load-bearing"}}), False),
        (changed("claimz", to=[]), False),
    ],
)
def test_schema_and_loader_agree(data: Any, fine: bool, validator: Any, tmp_path: Path) -> None:
    assert validator.is_valid(data) == loads(data, tmp_path / "a.circuit.yaml") == fine


def test_every_claim_is_there_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    claims = json.loads(capsys.readouterr().out)["properties"]["claims"]["items"]["properties"]
    assert {name: claim["description"] for name, claim in claims.items()} == {
        name: kind.summary for name, kind in claim_kinds().items()
    }
