"""`--circuit-store` and `--circuit-no-store`: where tables are kept for the next session, and for other workers."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from circuittest.store import Store

_STORE = pytest.StashKey["Store | None"]()


def add_options(group: pytest.OptionGroup, parser: pytest.Parser) -> None:
    """Register the options and their ini twins."""
    group.addoption(
        "--circuit-store",
        metavar="PATH|URL",
        default=None,
        help="keep tables in this directory or behind this fsspec URL (default: in the user's cache)",
    )
    group.addoption(
        "--circuit-no-store",
        action="store_true",
        default=None,
        help="measure everything anew, and keep nothing",
    )
    parser.addini("circuit_store", "as --circuit-store; a path is relative to the ini file", "string", "")
    parser.addini("circuit_no_store", "as --circuit-no-store", "bool", False)


def check(config: pytest.Config) -> None:
    """Refuse what cannot be a store before anything runs; imports nothing heavy. Raises pytest.UsageError."""
    root = root_of(config)
    if root is None:
        return
    if "://" not in root:
        if Path(root).exists() and not Path(root).is_dir():
            raise pytest.UsageError(f"--circuit-store {root}: there is a file of that name; name a directory")
    elif not root.startswith("file://") and find_spec("fsspec") is None:
        raise pytest.UsageError(
            f"--circuit-store {root}: fsspec is not installed; run: pip install circuittest[store]"
        )


def root_of(config: pytest.Config) -> str | None:
    """The path or URL of the session's store; None where there is none. Raises pytest.UsageError.

    The command line outweighs the ini file, and that the environment.
    """
    named, without = config.getoption("circuit_store"), config.getoption("circuit_no_store")
    if named and without:
        raise pytest.UsageError("--circuit-store and --circuit-no-store do not go together")
    if named is not None:
        if not named:
            raise pytest.UsageError("--circuit-store: name a directory or a URL, or use --circuit-no-store")
        return _placed(named, config.invocation_params.dir)
    if without or config.getini("circuit_no_store"):
        return None
    if named := config.getini("circuit_store"):
        return _placed(named, config.rootpath if config.inipath is None else config.inipath.parent)
    from circuittest.store.default import default_root

    return default_root()


def store_of(config: pytest.Config) -> Store | None:
    """The session's store; made when something is measured. Raises UsageError where it cannot be one."""
    if _STORE not in config.stash:
        root = root_of(config)
        if root is None:
            config.stash[_STORE] = None
        else:
            from circuittest.store import Store

            config.stash[_STORE] = Store(root)
    return config.stash[_STORE]


def _placed(named: str, folder: Path) -> str:
    return named if "://" in named else os.path.normpath(folder / Path(named).expanduser())
