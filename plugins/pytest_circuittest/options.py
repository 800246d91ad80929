"""Command-line options, their ini twins, and what they amount to."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_circuittest import devices, storing

TRUST = ("pickle", "remote-code")
PROGRESS = ("auto", "bar", "lines", "none")
DTYPES = ("float32", "float64", "bfloat16", "float16")


def add_options(parser: pytest.Parser) -> None:
    """Register everything with pytest."""
    group = parser.getgroup("circuittest", "claims about a model's circuits")
    group.addoption(
        "--circuit-json", metavar="PATH.json", default=None, help="write the verdict records to this file"
    )
    group.addoption(
        "--circuit-html", metavar="PATH.html", default=None, help="write a page about the claims to this file"
    )
    group.addoption(
        "--circuit-model",
        metavar="NEW",
        action="append",
        default=None,
        help="judge this model in place of the one that the suite names; OLD=NEW where it names several (repeatable)",
    )
    devices.add_options(group, parser)
    group.addoption("--circuit-dtype", metavar="DTYPE", default=None, help=", ".join(DTYPES))
    group.addoption(
        "--circuit-trust",
        action="append",
        choices=TRUST,
        default=None,
        help="read weights from pickles, too, or run code that comes with a model (repeatable; off by default)",
    )
    group.addoption(
        "--circuit-budget",
        metavar="FORWARDS",
        default=None,
        help="how many forwards (examples through the model) one claim may take; beyond it is undecided",
    )
    group.addoption(
        "--circuit-undecided",
        choices=("fail", "skip"),
        default="fail",
        help="what a spec's undecided claim does to its test item (default: fail)",
    )
    group.addoption(
        "--circuit-progress",
        choices=PROGRESS,
        default=None,
        help="how far long measurements are: bar (a terminal), lines (a log), none; auto chooses, and -q is none",
    )
    group.addoption(
        "--circuit-update",
        choices=("new", "all", "diff"),
        default=None,
        help="judge nothing, and write the locks of specs: those that have none, or all; diff shows what would change",
    )
    group.addoption(
        "--circuit-accept-model",
        action="store_true",
        help="with --circuit-update: this model is the new base, though its weights are not those of the lock",
    )
    storing.add_options(group, parser)
    parser.addini(
        "circuit_model", "model of tests without a circuit marker that names one", type="string", default=""
    )
    parser.addini(
        "circuit_task", "task of tests without a circuit marker that names one", type="string", default=""
    )
    parser.addini("circuit_budget", "as --circuit-budget", type="string", default="")
    parser.addini("circuit_progress", "as --circuit-progress", type="string", default="auto")
    parser.addini("circuit_dtype", "as --circuit-dtype", type="string", default="float32")


@dataclass
class Replacements:
    """What `--circuit-model` puts in place of the models that the suite names.

    Attributes
    ----------
    one:
        A model for the only one of the suite.
    pairs:
        OLD → NEW.
    named:
        The models that the suite has named so far.
    """

    one: str | None = None
    pairs: dict[str, str] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, texts: list[str]) -> Replacements:
        """Read the values of the option. Raises pytest.UsageError."""
        found = cls()
        for text in texts:
            old, equals, new = text.partition("=")
            if equals and not Path(text).exists():
                if not old or not new:
                    raise pytest.UsageError(f"--circuit-model {text}: write NEW or OLD=NEW")
                if found.pairs.setdefault(old, new) != new:
                    raise pytest.UsageError(
                        f"--circuit-model: {old} is replaced by {found.pairs[old]} and by {new}"
                    )
            elif found.one not in (None, text):
                raise pytest.UsageError(
                    f"--circuit-model: {found.one} and {text} cannot both replace the suite's model; write OLD=NEW"
                )
            else:
                found.one = text
        if found.one is not None and found.pairs:
            raise pytest.UsageError(
                "--circuit-model: NEW and OLD=NEW do not go together; write OLD=NEW for each"
            )
        return found

    def apply(self, model: str) -> str:
        """What takes the place of a model that the suite names. Raises pytest.UsageError."""
        if model not in self.named:
            self.named.append(model)
        if self.one is None:
            return self.pairs.get(model, model)
        if len(self.named) > 1:
            names = ", ".join(sorted(self.named))
            raise pytest.UsageError(
                f"--circuit-model {self.one} is ambiguous: the suite names several models ({names}); "
                f"write --circuit-model {self.named[0]}={self.one}"
            )
        return self.one

    def unused(self) -> list[str]:
        """The OLD of every pair that the suite does not name."""
        return [old for old in self.pairs if old not in self.named]


@dataclass(frozen=True)
class Settings:
    """The options of one session; ini values where the command line is silent."""

    replacements: Replacements
    model: str
    task: str
    device: str
    dtype: str
    undecided: str
    json: str | None
    html: str | None = None
    budget: int | None = None
    update: str | None = None
    accept_model: bool = False
    progress: str = "auto"
    memory: str = "auto"
    trust: tuple[str, ...] = ()
    #: Equal lab requests become one object: pytest before 9.1 tells parameters apart by identity.
    requests: dict[Any, Any] = field(default_factory=dict, compare=False)


_SETTINGS = pytest.StashKey[Settings]()


def settings(config: pytest.Config) -> Settings:
    """The session's settings, read once. Raises pytest.UsageError."""
    if _SETTINGS not in config.stash:
        config.stash[_SETTINGS] = _read(config)
    return config.stash[_SETTINGS]


def check_used(config: pytest.Config) -> None:
    """Refuse, once everything is collected, a replacement that replaces nothing. Raises pytest.UsageError."""
    for old in settings(config).replacements.unused():
        message = f"--circuit-model: no test or spec names {old}"
        if hasattr(config, "workerinput"):  # a worker of xdist cannot end the session
            warnings.warn(pytest.PytestWarning(message), stacklevel=1)
        else:
            raise pytest.UsageError(message)


def _read(config: pytest.Config) -> Settings:
    dtype = config.getoption("circuit_dtype") or config.getini("circuit_dtype")
    if dtype not in DTYPES:
        raise pytest.UsageError(f"--circuit-dtype {dtype}: use one of {', '.join(DTYPES)}")
    progress = config.getoption("circuit_progress") or config.getini("circuit_progress")
    if progress not in PROGRESS:
        raise pytest.UsageError(f"circuit_progress = {progress}: use one of {', '.join(PROGRESS)}")
    return Settings(
        replacements=Replacements.parse(config.getoption("circuit_model") or []),
        model=config.getini("circuit_model"),
        task=config.getini("circuit_task"),
        device=devices.check_device(config.getoption("circuit_device") or config.getini("circuit_device")),
        memory=devices.check_memory(config.getoption("circuit_memory") or config.getini("circuit_memory")),
        dtype=dtype,
        undecided=config.getoption("circuit_undecided"),
        json=_path(config, "json"),
        html=_path(config, "html"),
        budget=_budget(config.getoption("circuit_budget") or config.getini("circuit_budget")),
        update=config.getoption("circuit_update"),
        accept_model=config.getoption("circuit_accept_model"),
        progress=progress,
        trust=tuple(sorted(set(config.getoption("circuit_trust") or ()))),
    )


def _path(config: pytest.Config, kind: str) -> str | None:
    """The file of `--circuit-json` or `--circuit-html`; the ending keeps a slip from eating another file."""
    path: str | None = config.getoption(f"circuit_{kind}")
    if path is not None and not path.endswith(f".{kind}"):
        raise pytest.UsageError(f"--circuit-{kind} {path}: the name must end in .{kind}")
    return path


def _budget(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise pytest.UsageError(f"--circuit-budget {text}: write a positive number of forwards")
    return int(text)
