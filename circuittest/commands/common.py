"""What commands share: options of a lab, JSON output, and files that are not overwritten by mistake."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuittest.errors import CircuittestError, UsageError

if TYPE_CHECKING:
    from circuittest.lab import Lab


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json`` prints to stdout, ``--json PATH`` writes a file."""
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="PATH",
        help="write the result as JSON, to stdout (and nothing else there) or to PATH",
    )


def add_model(parser: argparse.ArgumentParser, *, several: str = "") -> None:
    """The options that name a model and say how to load it. `several`: what more of them mean, where there may be."""
    told = "zoo:NAME, a hub id (ID or ID@REVISION), a directory or a GGUF file"
    if several:
        parser.add_argument("--model", required=True, nargs="+", metavar="MODEL", help=f"{told}; {several}")
    else:
        parser.add_argument("--model", required=True, help=told)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default: auto)")
    parser.add_argument(
        "--dtype", default="float32", help="float32, float64, bfloat16 or float16 (default: float32)"
    )


def add_data(parser: argparse.ArgumentParser, *, discover: int, evaluate: int) -> None:
    """The options that choose examples."""
    parser.add_argument(
        "--discover",
        type=count,
        default=discover,
        metavar="N",
        help=f"discovery examples (default: {discover})",
    )
    parser.add_argument(
        "--evaluate",
        type=count,
        default=evaluate,
        metavar="N",
        help=f"evaluation examples (default: {evaluate})",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the examples (default: 0)")
    parser.add_argument("--prefix", default="auto", help="auto, bos, none or a token (default: auto)")
    parser.add_argument(
        "--answers",
        default="first",
        help="what of an answer is scored: first token, or whole (default: first)",
    )


def count(text: str) -> int:
    """A whole number that is not negative, for argparse."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def lab_of(arguments: argparse.Namespace, model: str | None = None) -> Lab:
    """The lab that the options describe, of one of the models where they may name several."""
    from circuittest.lab import Lab
    from circuittest.store.default import default_store

    return Lab(
        arguments.model if model is None else model,
        arguments.task,
        discover=arguments.discover,
        evaluate=arguments.evaluate,
        seed=arguments.seed,
        prefix=arguments.prefix,
        answers=arguments.answers,
        device=arguments.device,
        dtype=arguments.dtype,
        store=default_store(),
    )


def environment_of(model: Any) -> dict[str, Any]:
    """Versions, and how the model ran."""
    import torch

    from circuittest.report.records import environment

    how = {
        "device": model.device.type,
        "dtype": str(model.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
    }
    return environment([{"choices": how}])


def emit(place: str, payload: Mapping[str, Any], environment: Mapping[str, Any] | None = None) -> None:
    """Write a JSON document, with schema and environment before the payload, to stdout ("-") or a file."""
    from circuittest.report import records

    data = {
        "schema": records.SCHEMA,
        "environment": dict(environment if environment is not None else records.environment()),
        **payload,
    }
    text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"
    if place == "-":
        say(text, end="")
        return
    records.check_ours(place)
    write(place, lambda path: path.write_text(text, encoding="utf-8"))


def write(place: str | Path, make: Callable[[Path], object]) -> None:
    """Let `make` write a file beside its place, then move it there, so that no reader sees half of it."""
    target = Path(place)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        make(beside)
        os.replace(beside, target)
    except OSError as error:
        raise UsageError(f"cannot write {target}", error.strerror or str(error)) from error
    finally:
        with suppress(OSError):  # the place itself may be impossible
            beside.unlink()


def refuse_to_overwrite(place: str | Path, load: Callable[[Path], object], what: str) -> None:
    """Raise UsageError where a file is there already that `load` does not read as one of ours."""
    path = Path(place)
    if not path.exists():
        return
    try:
        load(path)
    except CircuittestError as error:
        raise UsageError(f"{path} is not overwritten", f"it is no {what}", "choose another name") from error


def say(text: str, end: str = "\n") -> None:
    """Write to stdout, whatever its encoding can show of it."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write((text + end).encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def width() -> int:
    """Columns of the terminal, within reason."""
    return min(160, max(60, shutil.get_terminal_size((100, 24)).columns))


def shows_unicode() -> bool:
    """Can stdout show the shades of a heat map?"""
    try:
        "█≥".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def table(columns: list[str], rows: list[list[str]]) -> str:
    """Plain columns for a terminal, folded to its width."""
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, show_edge=False)
    named = max((len(row[0]) for row in rows), default=0)  # what the rows are of folds last
    for column in columns:
        grid.add_column(column, overflow="fold", min_width=None if grid.columns else min(named, 24))
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    stream = io.StringIO()
    Console(file=stream, width=width(), highlight=False, color_system=None).print(grid)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
