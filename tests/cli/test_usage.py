"""Mistakes on the command line: one line that says what, why and what to do; exit code 2; never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from circuittest import __version__
from circuittest.cli import main


def failing(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The message of a command that must fail with exit code 2."""
    try:
        code = main(words)
    except SystemExit as stop:  # argparse
        code = int(str(stop.code))
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fnd"], "invalid choice: 'fnd'"),
        (["find", "--task", "ioi"], "required: --model"),
        (["find", "--model", "zoo:gqa"], "required: --task"),
        (["find", "--model", "zoo:gqa", "--task", "ioi", "--discover=-1"], "'-1' is not a whole number"),
        (
            ["find", "--model", "zoo:gqa", "--task", "ioi", "--", "-x"],
            "only `check` passes arguments after --",
        ),
        (["list", "things"], "invalid choice: 'things'"),
        (["tasks"], "required: ACTION"),
        (["tasks", "show", "ioi", "--model", "zoo:gqa", "--n", "2.5"], "'2.5' is not a whole number"),
        (["check"], "required: SPEC"),
        (["check", "a.circuit.yaml", "--undecided", "pass"], "invalid choice: 'pass'"),
    ],
)
def test_bad_arguments(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert message in failing(capsys, *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["doctor", "--model", "zoo:gqb"], "circuittest doctor: there is no model 'gqb' in the zoo"),
        (["doctor", "--model", "./nowhere"], "there is no file or directory './nowhere'"),
        (
            ["doctor", "--model", "zoo:gqa", "--dtype", "float23"],
            "unknown dtype 'float23'. Did you mean 'float32'?",
        ),
        (["doctor", "--model", "zoo:gqa", "--device", "gpu"], "unknown device 'gpu'"),
        (["doctor", "--model", "zoo:gqa", "--task", "ioy"], "there is no task 'ioy'"),
        (["find", "--model", "zoo:gqa", "--task", "ioy"], "Did you mean 'ioi'?"),
        (["find", "--model", "zoo:gqa", "--task", "ioi", "--top", "0.2"], 'Write "0.2%" or 20'),
        (["find", "--model", "zoo:gqa", "--task", "ioi", "--at", "101"], "at is '101'"),
        (
            ["find", "--model", "zoo:gqa", "--task", "ioi", "--universe", "hds"],
            "unknown universe 'hds'. Did you mean",
        ),
        (["find", "--model", "zoo:gqa", "--task", "ioi", "--universe", "experts"], "is empty"),
        (["find", "--model", "zoo:gqa", "--task", "ioi", "--score", "nodes"], "unknown unit score 'nodes'"),
        (["find", "--model", "zoo:gqa", "--task", "ioi", "--method", "egp"], "unknown method 'egp'"),
        (
            ["find", "--model", "zoo:gqa", "--task", "ioi", "--method", "eap-ig", "--baseline", "zero"],
            "EAP-IG from the baseline 'zero'",
        ),
        (["find", "--model", "zoo:gqa", "--task", "ioi", "--answers", "all"], "answers 'all' are unknown"),
        (
            ["find", "--model", "zoo:gqa", "--task", "ioi", "--prefix", "<nope>"],
            "prefix '<nope>' is no token",
        ),
        (
            ["tasks", "show", "ioi", "--model", "zoo:gqa", "--discover", "0", "--evaluate", "0"],
            "ask for at least one",
        ),
        (["tasks", "show", "facts", "--model", "zoo:gqa", "--discover", "99999"], "100199 were asked"),
        (["check", "nowhere.circuit.yaml"], "circuittest check: there is no spec nowhere.circuit.yaml"),
    ],
)
def test_known_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    err = failing(capsys, *words)
    assert message.lower() in err.lower()
    assert err.count("\n") == 1


def test_files_of_others_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "notes.json"
    mine.write_text('{"mine": 1}')
    (tmp_path / "discover.safetensors").write_text("mine")
    find = ["find", "--model", "zoo:gqa", "--task", "ioi", "--discover", "10"]
    assert "it is no circuit file" in failing(capsys, *find, "-o", str(mine))
    assert "it is no file of verdict records" in failing(capsys, *find, "--json", str(mine))
    assert "it is no score table" in failing(capsys, *find, "--tables", str(tmp_path))
    assert mine.read_text() == '{"mine": 1}'


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    err = failing(capsys, "list", "tasks", "--json", str(tmp_path / "file" / "x.json"))
    assert "cannot write" in err


@pytest.mark.parametrize(
    "words", [["--help"], ["find", "--help"], ["check", "--help"], ["--version"], ["find"]]
)
def test_help_and_mistakes_load_nothing_heavy(words: list[str]) -> None:
    script = (
        "import sys\nfrom circuittest.cli import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'numpy', 'pytest', 'rich', 'pydantic'} & set(sys.modules)\n"
        "sys.stderr.write(f'loaded: {sorted(heavy)}')"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == "loaded: []"
    if words == ["--version"]:
        assert done.stdout == f"circuittest {__version__}\n"


def test_a_closed_pipe_is_no_traceback() -> None:
    script = "import sys; from circuittest.cli import main; sys.exit(main(['list', 'tasks', '--json']))"
    running = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    running.stdout.close()
    assert running.stderr is not None
    assert "Traceback" not in running.stderr.read()
    running.wait(60)


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    for what, name in (("models", "zoo:gqa"), ("tasks", "ioi"), ("claims", "necessity")):
        assert main(["list", what]) == 0
        assert name in capsys.readouterr().out
        assert main(["list", what, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["schema"] == "circuittest/1"
        assert name in [row["name"] for row in data[what]]
    assert main(["list", "models", "--json"]) == 0
    models = json.loads(capsys.readouterr().out)["models"]
    there = {row["name"] for row in models if row["path"]}
    assert {"zoo:mha", "zoo:gqa", "zoo:gqa-mha", "zoo:redundant"} <= there
    assert all((Path(row["path"]) / "config.json").is_file() for row in models if row["path"])
    assert all(row["build"].startswith("circuittest zoo build ") for row in models if not row["path"])
