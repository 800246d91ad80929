"""YAML for files that people write: every value remembers its line and column, and traps are refused.

Read through PyYAML's event stream (libyaml where it is built in), not through its constructors, so that nothing in a
file can create an object. Refused, because they do not mean what they seem to: duplicate keys, tags, merge keys,
unquoted ``no``/``off``/``yes``/``on``/``y``/``n`` (booleans in YAML 1.1), ``1e-3`` (a string in YAML 1.1), octal,
hexadecimal, sexagesimal and underscored numbers, dates, and infinite or undefined numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from circuittest.errors import SpecError

Path_ = tuple[str | int, ...]
Place = tuple[int, int]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?(0|[1-9]\d{0,15})")
_FLOAT = re.compile(r"[-+]?\d{0,20}\.\d{0,20}([eE][-+]\d{1,3})?")
_EXPONENT = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+")
_MAX_BYTES, _MAX_DEPTH, _MAX_VALUES = 1_000_000, 40, 50_000


@dataclass(frozen=True)
class Document:
    """A YAML file as plain dicts, lists, strings, numbers, booleans and None.

    Attributes
    ----------
    data:
        The value of the whole file.
    places, key_places:
        (line, column), both from 1, of the value and of the key at each path of keys and indices.
    """

    file: str
    data: Any
    places: Mapping[Path_, Place] = field(default_factory=dict)
    key_places: Mapping[Path_, Place] = field(default_factory=dict)

    def place(self, path: Path_, *, key: bool = False) -> Place:
        """Where a path is, or the innermost part of it that the file has."""
        if key and path in self.key_places:
            return self.key_places[path]
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, (1, 1))

    def error(self, path: Path_, what: str, why: str = "", do: str = "", *, key: bool = False) -> SpecError:
        """A SpecError at the place of a path."""
        line, column = self.place(path, key=key)
        return SpecError(what, why, do, file=self.file, line=line, column=column)


def read_yaml(path: str | Path, *, name: str | None = None, what: str = "the spec") -> Document:
    """Read one YAML document.

    Parameters
    ----------
    path:
        The file.
    name:
        What messages call it; the path by default.
    what:
        What messages say that it is.

    Raises
    ------
    SpecError
        The file cannot be read, is no YAML, or holds something this dialect refuses.
    """
    file = name or str(path)
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise SpecError(f"{what} cannot be read", error.strerror or str(error), file=file) from error
    return parse_yaml(raw, file, what)


def parse_yaml(raw: bytes | str, file: str = "<string>", what: str = "the spec") -> Document:
    """As `read_yaml`, from the content of a file."""
    if isinstance(raw, str):
        raw = raw.encode("utf-8", "surrogatepass")
    if len(raw) > _MAX_BYTES:
        raise SpecError(
            f"{what} is too long", f"it has {len(raw)} bytes, at most {_MAX_BYTES} are read", file=file
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SpecError(
            f"{what} is not UTF-8 text", error.reason, "save it as UTF-8", file=file, line=line, column=1
        ) from error
    try:
        composer = _Composer(text, file, what)
        data = composer.document()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        why = f"the character U+{code:04X} is not allowed"
        raise SpecError("not YAML", why, "remove it", file=file, line=line, column=column) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = ", ".join(part for part in (error.context, error.problem) if part)
        do = "indent with spaces" if "cannot start any token" in why and _tab_at(text, mark) else ""
        where = {} if mark is None else {"line": mark.line + 1, "column": mark.column + 1}
        raise SpecError("not YAML", why, do, file=file, **where) from error
    except yaml.YAMLError as error:
        raise SpecError("not YAML", " ".join(str(error).split()), file=file) from error
    return Document(file, data, composer.places, composer.key_places)


class _Composer:
    """Turns events into plain values, noting the place of each."""

    def __init__(self, text: str, file: str, what: str) -> None:
        self.file, self.what = file, what
        self.loader = _LOADER(text)
        self.places: dict[Path_, Place] = {}
        self.key_places: dict[Path_, Place] = {}
        self.anchors: dict[str, list[Any]] = {}
        self.count = 0

    def document(self) -> Any:
        events = [self.loader.get_event() for _ in iter(self.loader.check_event, False)]
        bodies = [e for e in events if isinstance(e, yaml.DocumentStartEvent)]
        if not bodies:
            raise SpecError(
                f"{self.what} is empty",
                "",
                "write 'circuittest: 1' and the rest",
                file=self.file,
                line=1,
                column=1,
            )
        if len(bodies) > 1:
            why = f"{self.what} is one YAML document"
            self.refuse(bodies[1], "a second document starts here", why, "split the file")
        self.events = [
            e
            for e in events
            if not isinstance(
                e,
                (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent),
            )
        ]
        value, _ = self.value(0, ())
        return value

    def refuse(self, event: yaml.Event, what: str, why: str = "", do: str = "") -> NoReturn:
        line, column = _place(event)
        raise SpecError(what, why, do, file=self.file, line=line, column=column)

    def value(self, at: int, path: Path_) -> tuple[Any, int]:
        """The value whose events start at `at`, and the position after them."""
        event = self.events[at]
        self.count += 1
        if self.count > _MAX_VALUES or len(path) > _MAX_DEPTH:
            self.refuse(
                event,
                f"{self.what} is too large",
                f"over {_MAX_VALUES} values or {_MAX_DEPTH} levels, aliases included",
            )
        self.places[path] = _place(event)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, path), at + 1
        if event.tag is not None:
            self.refuse(
                event,
                f"the tag {event.tag} is refused",
                f"{self.what} holds plain values only",
                "remove the tag",
            )
        end = self.end_of(at)
        if event.anchor is not None:
            # Kept as events and read again at each alias, so that places under an alias are right, too.
            self.anchors[event.anchor] = [at, end, False]
        if isinstance(event, yaml.ScalarEvent):
            value: Any = self.scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value, after = [], at + 1
            while not isinstance(self.events[after], yaml.SequenceEndEvent):
                item, after = self.value(after, (*path, len(value)))
                value.append(item)
        else:
            value = self.mapping(at + 1, path)
        if event.anchor is not None and event.anchor in self.anchors:
            self.anchors[event.anchor] = [at, end, True]
        return value, end

    def alias(self, event: yaml.AliasEvent, path: Path_) -> Any:
        anchor = self.anchors.get(event.anchor or "")
        if anchor is None:
            self.refuse(event, f"no anchor &{event.anchor} above", "an alias repeats an earlier value")
        at, _, complete = anchor
        if not complete:
            self.refuse(event, f"*{event.anchor} contains itself", "a value cannot be part of itself")
        saved = dict(self.anchors)
        try:
            value, _ = self.value(at, path)
        finally:
            self.anchors = saved
        self.places[path] = _place(event)
        return value

    def mapping(self, at: int, path: Path_) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(self.events[at], yaml.MappingEndEvent):
            event = self.events[at]
            if not isinstance(event, yaml.ScalarEvent):
                self.refuse(event, "a key must be a word", "lists, mappings and aliases cannot be keys here")
            if event.tag is not None:
                self.refuse(
                    event,
                    f"the tag {event.tag} is refused",
                    f"{self.what} holds plain values only",
                    "remove the tag",
                )
            if event.implicit[0] and event.value == "<<":
                self.refuse(
                    event, "merge keys are refused", "what they override is hard to see", "write the keys out"
                )
            key = self.scalar(event)
            if not isinstance(key, str) or not key:
                self.refuse(
                    event, f"a key must be a word, not {event.value!r}", "", "quote it if it is meant"
                )
            if key in found:
                line, _ = self.key_places[(*path, key)]
                self.refuse(
                    event, f"the key {key!r} is given twice", f"the first is in line {line}", "remove one"
                )
            self.key_places[(*path, key)] = _place(event)
            found[key], at = self.value(at + 1, (*path, key))
        return found

    def end_of(self, at: int) -> int:
        """The position after the events of the value that starts at `at`."""
        depth = 0
        while True:
            event = self.events[at]
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            at += 1
            if depth == 0:
                return at

    def scalar(self, event: yaml.ScalarEvent) -> Any:
        """A quoted scalar is its text; a plain one is null, true, false, a number or its text."""
        text = event.value
        if not event.implicit[0]:
            return text
        tag = self.loader.resolve(yaml.ScalarNode, text, (True, False)).removeprefix(_TAG)
        if text in ("y", "Y", "n", "N") or (tag == "bool" and text.lower() not in ("true", "false")):
            do = f"quote it ({text!r}), or write true or false"
            self.refuse(event, f"unquoted {text} is ambiguous", "YAML 1.1 reads it as a boolean", do)
        if tag == "null":
            return None
        if tag == "bool":
            return text.lower() == "true"
        if tag == "int":
            if _INT.fullmatch(text):
                return int(text)
            self.refuse(
                event,
                f"ambiguous number {text}",
                "it is not plainly decimal",
                "write a plain decimal, or quote it",
            )
        if tag == "float":
            if _FLOAT.fullmatch(text) and text.strip("+-") != "." and abs(float(text)) != float("inf"):
                return float(text)
            self.refuse(
                event,
                f"ambiguous number {text}",
                "it is not plainly a finite decimal",
                "write a plain decimal",
            )
        if tag == "str" and _EXPONENT.fullmatch(text):
            do = "write it with a dot and a signed exponent, as 1.0e-3, or as a plain decimal"
            self.refuse(
                event, f"{text} is a string, not a number", "YAML 1.1 wants a dot and a signed exponent", do
            )
        if tag != "str":
            self.refuse(event, f"unquoted {text} is read as a {tag}", "", "quote it")
        return text


def _place(event: yaml.Event) -> Place:
    mark: Any = event.start_mark  # None only for events made by hand
    return mark.line + 1, mark.column + 1


def _tab_at(text: str, mark: Any) -> bool:
    lines = text.splitlines()
    return (
        mark is not None
        and mark.line < len(lines)
        and lines[mark.line][mark.column : mark.column + 1] == "\t"
    )
