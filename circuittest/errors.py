"""Every error that circuittest raises on purpose: what happened, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class CircuittestError(Exception):
    """Base of all deliberate errors.

    Attributes
    ----------
    what, why, do:
        The three parts of the message. `why` and `do` may be empty.
    """

    def __init__(self, what: str, why: str = "", do: str = "") -> None:
        self.what, self.why, self.do = what, why, do
        super().__init__(what, why, do)  # all three, so that the error survives pickling between workers

    def __str__(self) -> str:
        message = self.what
        if self.why:
            message += f": {self.why}"
        if self.do:
            message += f". {self.do[0].upper()}{self.do[1:]}"
        return message if message.endswith((".", "?", "!")) else message + "."


class UnitError(CircuittestError, ValueError):
    """A unit or edge id that cannot be read, or that the model does not have."""


class CircuitError(CircuittestError, ValueError):
    """A circuit that cannot be built, combined or read."""


class TableError(CircuittestError, ValueError):
    """Scores or outcomes whose shape, columns or values contradict each other."""


class ControlError(CircuittestError, ValueError):
    """A matched control that cannot exist."""


class LoadError(CircuittestError):
    """A model or tokenizer that cannot be loaded or must not be trusted."""


class UnsupportedModel(LoadError):
    """An architecture that no adapter describes, or that an operation cannot serve."""


class TaskError(CircuittestError, ValueError):
    """A task whose examples would silently ruin the numbers.

    `usable` counts the examples that there are, where more were asked.
    """

    usable: int | None = None


class InterventionError(CircuittestError):
    """An intervention that did not do what it was asked to do."""


class UsageError(CircuittestError, ValueError):
    """A call or command that asks for something impossible."""


class StoreError(CircuittestError):
    """A store that cannot be used as asked, or an entry of it that is not what was written."""


class SpecError(CircuittestError, ValueError):
    """A spec file with a mistake, at a place.

    `line` and `column` count from 1; they are None where the whole file is meant.
    """

    def __init__(
        self,
        what: str,
        why: str = "",
        do: str = "",
        *,
        file: str = "",
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(what, why, do)
        self.file, self.line, self.column = file, line, column

    def __reduce__(self) -> tuple[object, ...]:
        return _spec_error, (self.what, self.why, self.do, self.file, self.line, self.column)

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return f"{place}: {super().__str__()}" if place else super().__str__()


def _spec_error(what: str, why: str, do: str, file: str, line: int | None, column: int | None) -> SpecError:
    return SpecError(what, why, do, file=file, line=line, column=column)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A remedy for an unknown name: the closest known one, or the list of all."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
