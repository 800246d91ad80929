"""GGUF files: dequantised once into a Hugging Face directory in the user's cache, loaded from there ever after.

A model that transformers reads from GGUF directly cannot be saved and stays marked as quantised, and reading takes
tens of seconds. The directory is named by the file's SHA-256, written beside its final place and renamed, under
a lock: any number of processes may ask for it at once, and a killed one leaves nothing that looks finished.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from circuittest.cache import cache_dir
from circuittest.errors import CircuittestError, LoadError

log = logging.getLogger(__name__)

_MAGIC = b"GGUF"
# Part of the directory's name: raise it when a conversion comes out differently.
_FORMAT = 1
# GGUF pre-tokenizers that split every digit, which transformers' conversion forgets.
_DIGIT_SPLITTERS = ("smollm",)


def is_gguf(path: Path) -> bool:
    """Does the file claim to be GGUF, by its suffix or its first bytes?"""
    if path.suffix.lower() == ".gguf":
        return True
    with path.open("rb") as file:
        return file.read(4) == _MAGIC


def converted(path: Path) -> Path:
    """The Hugging Face directory of a GGUF file: weights in float32, tokenizer beside them. Converts if needed.

    Raises LoadError for a file that is not GGUF, is cut short or damaged, or whose architecture transformers cannot
    convert, and where the packages for conversion are missing.
    """
    with path.open("rb") as file:
        if (magic := file.read(4)) != _MAGIC:
            raise LoadError(
                f"{path} is not a GGUF file",
                f"it starts with {magic!r}, not with {_MAGIC!r}" if magic else "it is empty",
                "check the path, or download the file again",
            )
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    home = cache_dir() / "converted"
    target = home / f"{digest}-{_FORMAT}"
    if target.is_dir():
        return target
    missing = [package for package in ("gguf", "accelerate") if find_spec(package) is None]
    if missing:
        raise LoadError(
            f"cannot convert {path}",
            f"{' and '.join(missing)} not installed",
            "run: pip install circuittest[gguf]",
        )
    from filelock import FileLock

    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / f".{digest}.lock"):
            if target.is_dir():  # another process converted it while this one waited
                return target
            for leftover in home.glob(f".{digest}-*.part"):  # of a process that was killed: the lock is ours
                shutil.rmtree(leftover, ignore_errors=True)
            part = Path(tempfile.mkdtemp(prefix=f".{digest}-", suffix=".part", dir=home))
            try:
                _convert(path, part)
                part.replace(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise LoadError(
            f"cannot keep the converted weights of {path}",
            f"{home}: {error.strerror or error}",
            "free space there, or set CIRCUITTEST_CACHE to a writable directory",
        ) from error
    return target


def _convert(path: Path, into: Path) -> None:
    log.info("converting %s, once, into %s", path.name, into.parent)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # some of its progress bars cannot be switched off
            module, tokenizer = _read(path)
    except CircuittestError:
        raise
    except Exception as error:  # the reader fails in many ways on damaged files
        raise LoadError(
            f"cannot read {path}",
            f"the file is cut short, damaged, or of an architecture transformers cannot convert"
            f" ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'})",
            "compare its size and checksum with the source, or convert it to a Hugging Face directory yourself",
        ) from error
    with contextlib.redirect_stderr(io.StringIO()):
        module.save_pretrained(into)
        tokenizer.save_pretrained(into)


def _read(path: Path) -> tuple[Any, Any]:
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from circuittest.models.adapters import adapter_for

    reader = GGUFReader(path)  # maps every tensor, so a file that is cut short fails here, before long work
    split = _text(reader, "tokenizer.ggml.pre") in _DIGIT_SPLITTERS
    del reader
    place, name = str(path.parent), path.name
    read, info = AutoModelForCausalLM.from_pretrained(
        place, gguf_file=name, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
    )
    if missing := sorted(info["missing_keys"]):
        raise LoadError(
            f"{path} lacks the weight {missing[0]!r}", "", "convert the model from its source again"
        )
    adapter_for(read.config.model_type)
    # A module that was read from GGUF refuses to be saved, so its weights move to a fresh one.
    config = type(read.config).from_dict(
        {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
    )
    module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    module.load_state_dict(read.state_dict(), strict=True)
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name, trust_remote_code=False)
    if split:
        _split_digits(tokenizer)
    return module, tokenizer


def _text(reader: Any, key: str) -> str:
    field = reader.get_field(key)
    return "" if field is None else str(field.contents())


def _split_digits(tokenizer: Any) -> None:
    from tokenizers import pre_tokenizers

    backend = tokenizer.backend_tokenizer
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
