"""Tests under Hypothesis's `@given`: a search for a draw on which the claim fails, then a judgement of all draws.

A search finds something: among many draws one looks bad by chance. So claims that can be judged in that way
(`Estimate.together`) are searched on the discovery examples, and judged afterwards:

- A draw on which the claim is refuted is Hypothesis's counterexample, shrunk as usual. It counts only if the evaluation
  examples, which had no part in the search, refute it again; otherwise the test is undecided.
- Hypothesis is told how far each draw is on the wrong side of the threshold (`hypothesis.target`), and so looks where
  the claim is weakest.
- An undecided draw is counted and passed over. Where no draw is refuted, "all of these draws" is judged with bounds
  that hold for all of them at once; only a supported one makes the test green.

For other claims every draw must be supported by itself (then all are, without a correction); one that is undecided
leaves the test undecided. An invalid draw is an error in either case.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from pytest_circuittest.recording import recorder_of

if TYPE_CHECKING:
    from circuittest.stats import Verdict

_SECTION = "circuit property"


class Draws:
    """Every verdict that the draws of one test took, by what was claimed."""

    def __init__(self) -> None:
        self.claims: dict[tuple[Any, ...], list[Verdict]] = {}
        self.last: list[Verdict] = []

    def heard(self, verdict: Verdict) -> None:
        """A listener for `circuittest.stats.listen`."""
        if not any(one is verdict for one in self.last):  # assertion rewriting takes a truth twice
            self.last.append(verdict)

    @staticmethod
    def key(verdict: Verdict) -> tuple[Any, ...]:
        """What was claimed, of which model and task: draws of one task say nothing of another."""
        of = verdict.estimate
        return of.claim, of.model, of.fingerprint, of.task, verdict.op, verdict.threshold

    def wrap(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """The test of one draw, in which an undecided verdict is passed over."""
        from circuittest.stats import Undecided, listen, searching

        @wraps(inner)
        def once(*args: Any, **kwargs: Any) -> Any:
            self.last = []
            try:
                with searching(), listen(self.heard):
                    return inner(*args, **kwargs)
            except Undecided:
                return None
            finally:
                for verdict in self.last:
                    self.claims.setdefault(self.key(verdict), []).append(verdict)
                self.steer()

        return once

    def steer(self) -> None:
        """Tell Hypothesis how far this draw is on the wrong side: it climbs towards draws that fail."""
        from hypothesis import target

        told = set()
        for verdict in self.last:
            value = verdict.estimate.value
            if value is None or isinstance(verdict.threshold, str) or (key := self.key(verdict)) in told:
                continue
            told.add(key)
            beyond = value - verdict.threshold
            target(-beyond if verdict.op in (">=", ">") else beyond, label=" ".join(map(str, key)))

    def counts(self, verdicts: list[Verdict]) -> str:
        """ "stability > 0.6 in 40 draws: 31 supported, 9 undecided"."""
        outcomes = [verdict.outcome for verdict in verdicts]
        parts = [
            f"{outcomes.count(name)} {name}"
            for name in ("supported", "undecided", "refuted")
            if name in outcomes
        ]
        return f"{verdicts[0].claimed()} in {len(verdicts)} draws: {', '.join(parts)}"

    def together(self, verdicts: list[Verdict]) -> Verdict | None:
        """The verdict on all of these draws; None for claims that are not judged together."""
        first = verdicts[0]
        if first.estimate.together is None or first.op == "is" or isinstance(first.threshold, str):
            return None
        return first.estimate.together([verdict.estimate for verdict in verdicts]).compare(
            first.op, first.threshold
        )

    def confirm(self) -> tuple[str, Verdict] | None:
        """After a failure: the verdict of the untouched half on the draw that Hypothesis reports."""
        verdict = self.last[-1] if self.last else None
        if verdict is None or verdict.outcome != "refuted" or (again := self.together([verdict])) is None:
            return None
        return self.counts(self.claims[self.key(verdict)]), again


def offer_profile(config: pytest.Config) -> None:
    """Register the settings profile "circuits" where the command line asks for it, before Hypothesis looks it up."""
    if getattr(config.known_args_namespace, "hypothesis_profile", None) == "circuits":
        import_module("hypothesis_circuittest.profile")


def judged(item: pytest.Item) -> Generator[None, Any, Any]:
    """Around the call of a test function. Tests without `@given`, or without circuits, are left alone."""
    handle = getattr(getattr(item, "obj", None), "hypothesis", None)
    recorder = recorder_of(item)
    if handle is None or recorder is None:
        return (yield)
    draws, inner = Draws(), handle.inner_test
    handle.inner_test = draws.wrap(inner)
    try:
        result = yield
    except Exception as error:
        _after_failure(item, draws, error)
        raise
    finally:
        handle.inner_test = inner
    _after_success(item, draws)
    return result


def _after_failure(item: pytest.Item, draws: Draws, error: Exception) -> None:
    """Add to a counterexample what the untouched half says of it; raise Undecided where it says something else."""
    found = draws.confirm()
    if found is None:
        return
    counts, again = found
    recorder = recorder_of(item)
    if recorder is not None:
        recorder.keep_only(again)
    item.add_report_section(
        "call", _SECTION, f"{counts}\nthe counterexample on the evaluation examples: {again!r}"
    )
    if again.outcome == "refuted":
        error.add_note(
            f"{counts}. On the evaluation examples, which had no part in the search: {again.reason}"
        )
        for hint in draws.last[-1].estimate.hints:
            error.add_note(f"In the search: {hint}")
        return
    from circuittest.stats import Undecided

    doubt = Undecided(
        f"{again.claimed()} failed on a draw, which the untouched examples do not confirm",
        f"{counts}; of the draw that failed, the evaluation examples say: {again.reason}",
        "take more examples",
    )
    doubt.verdict = again
    raise doubt from error


def _after_success(item: pytest.Item, draws: Draws) -> None:
    """Judge every claim that held in all draws, or was passed over, on all of them."""
    from circuittest.stats import Undecided

    recorder = recorder_of(item)
    for verdicts in draws.claims.values():
        if any(verdict.outcome == "refuted" for verdict in verdicts):
            continue  # the test was not about this claim holding, as in `assert not …`
        whole = draws.together(verdicts)
        counts = draws.counts(verdicts)
        item.add_report_section(
            "call", _SECTION, counts if whole is None else f"{counts}\ntogether: {whole!r}"
        )
        if whole is not None:
            if recorder is not None:
                recorder.keep_only(whole)
            if not whole:
                pytest.fail(f"{counts}; together: {whole!r}", pytrace=False)
        elif any(verdict.outcome == "undecided" for verdict in verdicts):
            open_one = next(verdict for verdict in verdicts if verdict.outcome == "undecided")
            doubt = Undecided(
                f"{open_one.claimed()} is undecided in some draws",
                f"{counts}; one of them: {open_one.reason}",
            )
            doubt.verdict = open_one
            raise doubt
