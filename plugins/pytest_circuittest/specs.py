"""Spec files as test items: one a claim, and one a claim and model where a file lists models."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_circuittest import registering
from pytest_circuittest.options import settings
from pytest_circuittest.pool import pool
from pytest_circuittest.requests import LabRequest, request
from pytest_circuittest.updating import LockItem, lock_item

if TYPE_CHECKING:
    from circuittest.spec import ClaimSpec, Spec
    from circuittest.stats import Verdict

SUFFIX = ".circuit.yaml"


class Refuted(Exception):
    """A claim of a spec is refuted."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.claimed())
        self.verdict = verdict


def collect_spec(file_path: Path, parent: pytest.Collector) -> SpecFile | None:
    """The collector of a spec file, or None for other files."""
    if file_path.name.endswith(SUFFIX):
        return SpecFile.from_parent(parent, path=file_path)
    return None


class SpecFile(pytest.File):
    """A spec file. Mistakes in it are errors of the collection, at file, line and column."""

    def collect(self) -> Iterator[SpecItem | LockItem]:
        from circuittest.errors import CircuittestError
        from circuittest.spec import load_spec

        registering.once(self.config)
        chosen = settings(self.config)
        name, locked = shown_path(self.path, self.config), chosen.update is None
        try:
            spec = load_spec(self.path, name=name, locked=locked)
        except CircuittestError as error:
            raise self.CollectError(str(error)) from None
        try:
            requests = [
                request(chosen, model, spec.task, spec.task_options, folder=self.path.parent)
                for model in spec.models
            ]
        except pytest.UsageError as error:
            raise self.CollectError(f"{shown_path(self.path, self.config)}: {error}") from None
        if chosen.update is not None:
            yield from lock_item(self, spec, requests)
            return
        requests = list(dict.fromkeys(requests))  # two models of the file may be replaced by one
        names = told_apart(requests)
        if len(set(names)) < len(names):
            raise self.CollectError(
                f"{shown_path(self.path, self.config)}: 'model' names one directory twice"
            )
        for wanted, called in zip(requests, names, strict=True):
            for claim in spec.claims:
                name = claim.id if len(requests) == 1 else _with_model(claim.id, called)
                yield SpecItem.from_parent(self, name=name, spec=spec, claim=claim, request=wanted)


class SpecItem(pytest.Item):
    """One claim of a spec on one model."""

    def __init__(self, *, spec: Spec, claim: ClaimSpec, request: LabRequest, **more: Any) -> None:
        super().__init__(**more)
        self.spec, self.claim, self.request = spec, claim, request
        self.add_marker(pytest.mark.circuit(model=request.model, task=request.task))
        if claim.skip:
            self.add_marker(pytest.mark.skip(reason=claim.skip))
        if claim.xfail:  # of a refuted claim alone: one that cannot be judged was not expected
            self.add_marker(pytest.mark.xfail(reason=claim.xfail, raises=Refuted))

    def runtest(self) -> None:
        """Judge the claim; a refuted one fails, an undecided one fails or skips."""
        from circuittest.spec import judge
        from circuittest.stats import Undecided

        verdict = judge(self.spec, self.claim, pool(self.config).lab(self.request))
        try:
            supported = bool(verdict)
        except Undecided as error:
            if settings(self.config).undecided == "skip":
                pytest.skip(f"{error.what}: {error.why}")
            raise
        if not supported:
            raise Refuted(verdict)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What was claimed and measured, without a traceback, for everything that circuittest raises on purpose."""
        from circuittest.errors import CircuittestError

        error = excinfo.value
        verdict = getattr(error, "verdict", None)
        place = f"{self.spec.file}:{self.claim.line}:{self.claim.column}"
        if verdict is not None:
            return f"{verdict!r}\n\n{place}: {verdict.outcome}"
        if isinstance(error, CircuittestError):
            text = str(error)
            return text if text.startswith(f"{self.spec.file}:") else f"{place}: {text}"
        return super().repr_failure(excinfo) if style is None else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str], int | None, str]:
        """The place of the claim, so that failures point into the file."""
        return self.path, self.claim.line - 1, self.name


def told_apart(requests: Sequence[LabRequest]) -> list[str]:
    """The names of models for ids: of directories with equal names as many of the last parts as tell them apart.

    Two items of one id would share a record, and with workers of xdist only one of them would run.
    """
    names = [one.name for one in requests]
    parts = 1
    while len(set(names)) < len(names) and parts < 64:
        parts += 1
        names = [
            "/".join(Path(one.model).expanduser().resolve().parts[-parts:])
            if names.count(name) > 1 and one.name != one.model  # a model of the hub keeps its name
            else name
            for one, name in zip(requests, names, strict=True)
        ]
    return names


def shown_path(path: Path, config: pytest.Config) -> str:
    """A path relative to where pytest was started, where it lies below."""
    try:
        return path.relative_to(config.invocation_params.dir).as_posix()
    except ValueError:
        return str(path)


def _with_model(claim_id: str, model: str) -> str:
    """``necessity[zoo:gqa]``, ``necessity[name_movers-zoo:gqa]``."""
    return f"{claim_id[:-1]}-{model}]" if claim_id.endswith("]") else f"{claim_id}[{model}]"
