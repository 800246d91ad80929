"""What is found wrong with a spec when it is collected: tasks, features, ranges and environment variables, each at its
line and column.
"""

from __future__ import annotations

import json

import pytest

from circuittest.errors import SpecError
from circuittest.spec import load_spec

HEAD = "circuittest: 1\nmodel: zoo:gqa\ntask: {task}\ncircuit: {{top: 20%, at: 95}}\nclaims:\n"


@pytest.fixture
def spec(tmp_path):
    def load(claims: str = "  - reuse: {min: 0.3}\n", task: str = "ioi", text: str = ""):
        file = tmp_path / "x.circuit.yaml"
        file.write_text(text or HEAD.format(task=task) + claims)
        return load_spec(file, name="x.yaml")

    return load


def refused(load, *args, **kwargs) -> str:
    with pytest.raises(SpecError) as error:
        load(*args, **kwargs)
    return str(error.value)


def test_an_unknown_task_is_told_once_with_what_was_meant(spec):
    assert refused(spec, task="ioy") == "x.yaml:3:7: there is no task 'ioy'. Did you mean 'ioi'?"
    text = refused(spec, task="{name: qqqqq, evaluate: 20}")
    assert text.startswith("x.yaml:3:14: there is no task 'qqqqq'. Known are ")
    assert text.count("gendered_pronoun") == 1


def test_tasks_may_say_how_they_are_asked(spec):
    assert spec(task="ioi+4shots+chat").task == "ioi+4shots+chat"
    assert "says twice" in refused(spec, task="ioi+chat+chat")


def test_a_file_that_is_not_there(spec, tmp_path):
    assert "there is no file 'mine.jsonl'" in refused(spec, task="mine.jsonl")
    (tmp_path / "mine.jsonl").write_text("")
    assert spec(task="mine.jsonl").task == "mine.jsonl"


@pytest.mark.parametrize(
    ("given", "place", "message"),
    [
        ("templat", "6:28", "did you mean 'template'?"),
        ("template *", "6:28", "template *"),
        ("[template, ordr]", "6:39", "did you mean 'order'?"),
    ],
)
def test_a_partition_by_a_feature_that_the_task_lacks(spec, given, place, message):
    text = refused(spec, f"  - stability: {{partition: {given}, above: 0.6}}\n")
    assert text.startswith(f"x.yaml:{place}: ")
    assert message.lower() in text.lower()


def test_partitions_of_a_file_s_features(spec, tmp_path):
    row = {"prompt": "a b", "answer": " c", "foil": " d", "counterfactual": "a e", "counterfactual_answer": " d",
           "features": {"kind": "x"}}  # fmt: skip
    (tmp_path / "mine.jsonl").write_text("\n".join(json.dumps({**row, "prompt": f"a {i}"}) for i in range(4)))
    claim = "  - stability: {{partition: {}, above: 0.6}}\n"
    assert "did you mean 'kind'?" in refused(spec, claim.format("kinds"), task="mine.jsonl").lower()
    assert spec(claim.format("kind"), task="mine.jsonl").claims[0].options == {"partition": "kind"}


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ("necessity: {min: 0.3, controls: 0}", "'controls' of the claim necessity is 0"),
        ("closure: {is: none, controls: -1}", "'controls' of the claim closure is -1"),
        ("sufficiency: {min: 0.3, controls: -1}", "it must be greater than or equal to 0"),
    ],
)
def test_numbers_out_of_range(spec, claim, message):
    text = refused(spec, f"  - {claim}\n")
    assert text.startswith("x.yaml:6:")
    assert message in text


def test_no_controls_where_they_are_an_extra(spec):
    assert spec("  - sufficiency: {min: 0.3, controls: 0}\n").claims[0].options == {"controls": 0}


@pytest.mark.parametrize(
    ("circuit", "message"),
    [
        ("{top: 200%}", "'top' of circuit is \"200%\": it must look like 20%, and be at most 100%"),
        ("{method: eapp}", "did you mean 'eap'?"),
    ],
)
def test_circuits(spec, circuit, message):
    text = HEAD.format(task="ioi").replace("{top: 20%, at: 95}", circuit) + "  - reuse: {min: 0.3}\n"
    assert message.lower() in refused(spec, text=text).lower()


@pytest.mark.parametrize(
    ("seed", "remedy"),
    [
        ("x", "Write a number, such as 0"),
        ("'3'", "Write the number without quotes"),
        ("1.5", "a whole number"),
    ],
)
def test_remedies_for_what_is_no_number(spec, seed, remedy):
    assert remedy in refused(spec, task=f"{{name: ioi, seed: {seed}}}")


# Environment variables ---------------------------------------------------------------------------------------


def with_model(model: str, more: str = "") -> str:
    return (
        HEAD.format(task="ioi").replace("model: zoo:gqa", f"model: {model}")
        + f"  - reuse: {{min: 0.3}}\n{more}"
    )


def test_paths_of_models_and_circuits_may_vary(spec, monkeypatch, tmp_path):
    monkeypatch.setenv("MODELS", "/data/models")
    assert spec(text=with_model("${MODELS}/tuned")).models == ("/data/models/tuned",)
    assert (
        spec(text=with_model("[zoo:gqa, '${MODELS}/a/${MODELS}']")).models[1] == "/data/models/a//data/models"
    )
    monkeypatch.setenv("NOWHERE", str(tmp_path / "no"))
    text = with_model("zoo:gqa").replace("{top: 20%, at: 95}", "{file: '${NOWHERE}/c.json'}")
    assert "there is no such file" in refused(spec, text=text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (with_model("${NOT_SET_HERE}/x"), "x.yaml:2:8: the environment variable NOT_SET_HERE is not set"),
        (with_model("${1X}/x"), "x.yaml:2:8: ${1X} names no environment variable"),
        (with_model("${HOME}"), "x.yaml:2:8: '${HOME}' is no path"),
        (
            HEAD.format(task="'${HOME}/x.jsonl'") + "  - reuse: {min: 0.3}\n",
            "x.yaml:3:7: '${HOME}/x.jsonl' is no path",
        ),
        (with_model("zoo:gqa", "  - reuse: {min: 0.3, id: '${HOME}/a'}\n"), "x.yaml:7:"),
    ],
)
def test_what_may_not_vary(spec, monkeypatch, text, message):
    monkeypatch.setenv("HOME", "/home/me")
    assert refused(spec, text=text).startswith(message)


def test_a_variable_in_other_letters(spec, monkeypatch):
    monkeypatch.setenv("MODELS", "/data")
    assert "Did you mean 'MODELS'?" in refused(spec, text=with_model("${models}/x"))


def test_a_dollar_alone_is_text(spec):
    assert spec(text=with_model("./a$b")).models == ("./a$b",)
