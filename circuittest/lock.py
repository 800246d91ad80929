"""Lock files: what a spec's base model measured, so that a tuned model can be compared with it on the same examples.

``x.circuit.lock`` lies beside ``x.circuit.yaml``. It is JSON with a version and a checksum, the same bytes for the same
measurements, and is written by `circuittest.spec.lock` only; people review it as they review any lock file, by its
diff. The base model is not needed to read it.

Outcomes of 0 and 1 are strings of digits, one a row; rows of other numbers are texts of numbers that read back exactly.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from circuittest.circuit import Circuit
from circuittest.errors import CircuittestError, SpecError, UsageError
from circuittest.units import Layout
from circuittest.weights import Weights

SCHEMA = "circuittest-lock/2"
AGAIN = "restore it from version control, or write it again on the base model with --circuit-update=all"

#: Rows of graded outcomes.
ROWS = ("nothing", "universe", "circuit", "controls")
#: Rows with the circuit kept.
KEPT = ("nothing kept", "circuit kept")
#: Seconds to wait for another process that writes the same file; writing takes milliseconds.
WAIT = 30.0
ACCURACIES = ("argmax", "candidates")
GRADED = ("log_prob", "logit_diff")

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What the base did on the evaluation examples.

    Attributes
    ----------
    universe:
        What the controls were drawn from, as ids; ablated as a whole it is the floor.
    controls:
        R matched sets, as ids.
    accuracies:
        Column → [3 + R × n] 0 or 1: nothing, the universe, the circuit, and each control ablated.
    graded:
        Column → [4 × n]: nothing, the universe, the circuit ablated, and the mean over controls.
    kept:
        Column → [2 × n] `KEPT`: the universe, and the universe without the circuit, as on the counterfactual prompt.
    no_kept:
        Why `kept` is empty, or "".
    """

    universe: tuple[str, ...]
    controls: tuple[tuple[str, ...], ...]
    accuracies: Mapping[str, Floats]
    graded: Mapping[str, Floats]
    kept: Mapping[str, Floats] = field(default_factory=dict)
    no_kept: str = ""

    def rows(self, measure: str) -> Floats:
        """[4 × n] `ROWS` of a measure. Raises UsageError where the lock does not hold it."""
        if measure in self.accuracies:
            table = self.accuracies[measure]
            return np.vstack((table[:3], table[3:].mean(0)))
        if measure not in self.graded:
            known = ", ".join((*self.accuracies, *self.graded))
            raise UsageError(f"the lock holds no outcomes in {measure}", "", f"it has {known}")
        return self.graded[measure]


@dataclass(frozen=True, eq=False)
class Ranking:
    """How the base ranked the members of a universe on the discovery examples.

    Attributes
    ----------
    members:
        Ids, in the order of the columns.
    inside:
        bool [examples × members]: each example's top K %.
    mean:
        [members] mean absolute score.
    """

    members: tuple[str, ...]
    inside: NDArray[np.bool_]
    mean: Floats


@dataclass(frozen=True, eq=False)
class Locked:
    """A circuit and what the base does with it; `missing` says why there are no outcomes."""

    circuit: Circuit
    outcomes: Outcomes | None = None
    ranking: Ranking | None = None
    missing: str = ""


@dataclass(frozen=True, eq=False)
class Lock:
    """What was measured on the base of a spec.

    Attributes
    ----------
    model:
        ``name``, ``fingerprint``, ``tokenizer`` (a digest of its vocabulary) and ``dtype``.
    layout:
        The architecture.
    spec:
        What the spec asked for when the lock was made: ``task``, ``task_options``, ``circuit``.
    discover, evaluate:
        Digests of the prompts.
    circuits:
        The circuit of the file as ``circuit``, groups by name.
    claims:
        Claim id → ``claim``, ``estimate``, ``interval``, ``invalid``.
    made:
        Versions.
    scored:
        Digest of what counts as right on the evaluation examples (`scored_digest`); "" in locks without it.
    weights:
        Traces of the weights, by which heads that changed places and other training runs are told; None for quantised
        models.
    digest:
        The checksum.
    """

    model: Mapping[str, str]
    layout: Layout
    spec: Mapping[str, Any]
    discover: tuple[str, ...]
    evaluate: tuple[str, ...]
    circuits: Mapping[str, Locked]
    claims: Mapping[str, Mapping[str, Any]]
    made: Mapping[str, Any]
    scored: str = ""
    weights: Weights | None = None

    def body(self) -> dict[str, Any]:
        """Everything but schema and checksum, in plain JSON types."""
        return {
            "model": dict(self.model),
            "layout": self.layout.to_dict(),
            "spec": dict(self.spec),
            "discover": " ".join(self.discover),
            "evaluate": " ".join(self.evaluate),
            **({"scored": self.scored} if self.scored else {}),
            **({"weights": self.weights.to_dict()} if self.weights else {}),
            "circuits": {name: _locked(one) for name, one in self.circuits.items()},
            "claims": {name: dict(one) for name, one in self.claims.items()},
            "made": dict(self.made),
        }

    @property
    def digest(self) -> str:
        """The checksum: of everything in the file."""
        return _checksum(self.body())

    def render(self) -> str:
        """The text of the file."""
        data = {"schema": SCHEMA, "checksum": self.digest, **self.body()}
        return json.dumps(data, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"

    def save(self, path: str | Path, *, over: bytes | Literal["anything"] | None = "anything") -> None:
        """Write the file in one step: a reader sees the old one or the new one.

        Parameters
        ----------
        over:
            What must still be there: the bytes that were read before measuring began, or None for no file.

        Raises
        ------
        UsageError
            The folder cannot be written, or another process wrote the file meanwhile, which is then left alone.
        """
        target = Path(path)
        beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with _alone(target):
                if not isinstance(over, str) and content(target) != over:
                    raise UsageError(
                        f"{target} is not updated",
                        "another process wrote it while this one measured",
                        "look at what it wrote, and run the update again if it is still wanted",
                    )
                beside.write_text(self.render(), encoding="utf-8")
                os.replace(beside, target)
        except OSError as error:
            raise UsageError(f"cannot write {target}", error.strerror or str(error)) from error
        finally:
            with suppress(OSError):
                beside.unlink()

    @classmethod
    def load(cls, path: str | Path, *, name: str | None = None) -> Lock:
        """Read a lock file.

        Raises
        ------
        SpecError
            Naming the file: it is not there, torn, of another version, or changed by hand.
        """
        file = name or str(path)
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise SpecError("the lock cannot be read", error.strerror or str(error), file=file) from error
        except (ValueError, RecursionError) as error:  # bad JSON and bad UTF-8 alike
            raise SpecError(
                "the lock is torn, or no JSON", str(error).splitlines()[0], AGAIN, file=file
            ) from error
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA:
            why = f"its schema is {schema!r}, and this release reads {SCHEMA!r}"
            do = (
                "use the release that wrote it, or write it again on the base model with --circuit-update=all"
            )
            raise SpecError("the lock is of another version", why, do, file=file)
        body = {key: value for key, value in data.items() if key not in ("schema", "checksum")}
        if data.get("checksum") != _checksum(body):
            raise SpecError(
                "the lock was changed by hand, or in a merge", "its checksum is another", AGAIN, file=file
            )
        try:
            return cls(
                model={key: str(body["model"][key]) for key in ("name", "fingerprint", "tokenizer", "dtype")},
                layout=Layout(**body["layout"]),
                spec=dict(body["spec"]),
                discover=tuple(body["discover"].split()),
                evaluate=tuple(body["evaluate"].split()),
                circuits={key: _read_locked(one) for key, one in body["circuits"].items()},
                claims={key: dict(one) for key, one in body["claims"].items()},
                made=dict(body["made"]),
                scored=str(body.get("scored", "")),
                weights=Weights.from_dict(body["weights"]) if "weights" in body else None,
            )
        except (CircuittestError, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise SpecError("the lock is malformed", f"{error!r:.200}", AGAIN, file=file) from error

    def of(self, circuit: Circuit) -> Locked | None:
        """What the lock holds of a circuit, by its members; None where it has no such circuit."""
        return next((one for one in self.circuits.values() if one.circuit == circuit), None)


def lock_path(spec: str | Path) -> Path:
    """``x.circuit.lock`` for ``x.circuit.yaml``."""
    return Path(spec).with_suffix(".lock")


def content(path: Path) -> bytes | None:
    """The bytes of a file; None where there is none."""
    return path.read_bytes() if path.exists() else None


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Keep other processes of this user from writing the file; not where nothing can be locked, or is held for long.

    What is held lies in the folder of temporary files, so that nothing is left beside the lock. It is the operating
    system's, and falls when its process ends, however it ends.
    """
    from filelock import FileLock

    # one name for one file and one user, whose temporary files others may not open
    name = sha256(f"{Path.home()}|{target.resolve()}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
    held = FileLock(Path(tempfile.gettempdir()) / f"circuittest-{name}.lock")
    try:
        held.acquire(timeout=WAIT)
    except (OSError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        held.release()


def tokenizer_digest(tokenizer: Any) -> str:
    """Twelve hex digits of a tokenizer's vocabulary; "" where there is none."""
    vocabulary = getattr(tokenizer, "get_vocab", None)
    if vocabulary is None:
        return ""
    listed = sorted((str(token), int(i)) for token, i in vocabulary().items())
    return sha256(json.dumps(listed).encode()).hexdigest()[:12]


def scored_digest(items: Iterable[Any]) -> str:
    """Twelve hex digits of the answers and foils of examples: what their outcomes are outcomes of."""
    listed = [
        [list(one.answer_ids), list(one.foil_ids), list(one.answer_rest), bool(one.ends)] for one in items
    ]
    return sha256(json.dumps(listed).encode()).hexdigest()[:12]


def _checksum(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _locked(one: Locked) -> dict[str, Any]:
    found: dict[str, Any] = {"circuit": one.circuit.to_dict(), "missing": one.missing}
    if (outcomes := one.outcomes) is not None:
        found["outcomes"] = {
            "universe": " ".join(outcomes.universe),
            "controls": [" ".join(units) for units in outcomes.controls],
            "accuracies": {key: _bits(table) for key, table in outcomes.accuracies.items()},
            "graded": {key: [_numbers(row) for row in table] for key, table in outcomes.graded.items()},
            "kept": {
                key: _bits(table) if key in ACCURACIES else [_numbers(row) for row in table]
                for key, table in outcomes.kept.items()
            },
            "no_kept": outcomes.no_kept,
        }
    if (ranking := one.ranking) is not None:
        found["ranking"] = {
            "members": " ".join(ranking.members),
            "inside": _bits(ranking.inside),
            "mean": _numbers(ranking.mean),
        }
    return found


def _read_locked(data: Mapping[str, Any]) -> Locked:
    outcomes = ranking = None
    if (given := data.get("outcomes")) is not None:
        controls = tuple(tuple(units.split()) for units in given["controls"])
        outcomes = Outcomes(
            universe=tuple(given["universe"].split()),
            controls=controls,
            accuracies={
                key: _read_bits(rows, 3 + len(controls)).astype(np.float64)
                for key, rows in given["accuracies"].items()
            },
            graded={key: _read_rows(rows, len(ROWS)) for key, rows in given["graded"].items()},
            kept={
                key: _read_bits(rows, len(KEPT)).astype(np.float64)
                if key in ACCURACIES
                else _read_rows(rows, len(KEPT))
                for key, rows in given["kept"].items()
            },
            no_kept=str(given["no_kept"]),
        )
    if (given := data.get("ranking")) is not None:
        members = tuple(given["members"].split())
        inside = _read_bits(given["inside"], len(given["inside"]))
        mean = _read_rows([given["mean"]], 1)[0]
        if inside.shape[1] != len(members) or mean.shape != (len(members),):
            raise ValueError("a ranking whose columns are not its members")
        ranking = Ranking(members, inside, mean)
    return Locked(Circuit.from_dict(data["circuit"]), outcomes, ranking, str(data.get("missing", "")))


def _bits(table: NDArray[Any]) -> list[str]:
    return ["".join("1" if value else "0" for value in row) for row in table]


def _read_bits(rows: Sequence[str], count: int) -> NDArray[np.bool_]:
    if len(rows) != count or set("".join(rows)) - {"0", "1"}:
        raise ValueError(f"{len(rows)} rows of 0 and 1 where {count} were expected")
    return np.array([[digit == "1" for digit in row] for row in rows], dtype=bool)


def _numbers(row: Iterable[float]) -> str:
    return " ".join(repr(float(value)) for value in row)


def _read_rows(rows: Sequence[str], count: int) -> Floats:
    if len(rows) != count:
        raise ValueError(f"{len(rows)} rows where {count} were expected")
    found = np.array([[float(word) for word in row.split()] for row in rows], dtype=np.float64)
    if not np.isfinite(found).all():
        raise ValueError("a number that is not finite")
    return found
