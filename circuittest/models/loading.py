"""From what a user names (a zoo model, hub id, directory, GGUF file, or a module in memory) to a LoadedModel."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from circuittest.errors import CircuittestError, LoadError, UnsupportedModel, UsageError, did_you_mean
from circuittest.models import checks, gguf, hub, lazy, own_tokenizer
from circuittest.models.adapters import Adapter
from circuittest.models.fingerprint import fingerprint, marks
from circuittest.models.loaded import LoadedModel

if TYPE_CHECKING:
    from circuittest.store import Store

_DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_LOG = logging.getLogger("circuittest")
#: What a caller may ask for beyond safetensors and transformers' own code.
TRUST = ("pickle", "remote-code")


def load_model(
    ref: str | Path | nn.Module,
    *,
    tokenizer: Any = None,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "float32",
    name: str | None = None,
    store: Store | None = None,
    trust: Collection[str] = (),
) -> LoadedModel:
    """Load a causal language model, in evaluation mode and with frozen parameters.

    Parameters
    ----------
    ref:
        ``zoo:NAME``, a hub id, a hub id at a revision (``ID@REVISION``), a directory, a GGUF file (converted once into
        the cache), or a module in memory, which is wrapped as it is (`from_module`): `device` and `dtype` are then the
        module's own.
    tokenizer:
        A tokenizer, or the hub id or directory of one; by default the model's own.
    device:
        "auto" is CUDA where there is one, else the CPU.
    dtype:
        "float32", "float64", "bfloat16" or "float16".
    name:
        What it is called in messages and records; by default what `ref` says.
    store:
        Where it is remembered what files give. A model that is known there is not read before it is needed
        (`circuittest.models.lazy`).

    trust:
        Nothing, by default: only safetensors are read, and code that comes with a model is not run. "pickle" lets
        transformers read ``pytorch_model.bin``, too; "remote-code" lets it import what lies beside the weights. A model
        that is trusted in either way is not looked up in the store.

    Raises
    ------
    UsageError
        For a dtype or device that does not exist, and for an unknown word in `trust`.
    LoadError, UnsupportedModel
        For a model that cannot be found, read, or measured, with the reason and what to do.
    """
    if unknown := sorted(set(trust) - set(TRUST)):
        raise UsageError(f"a model cannot be trusted as {unknown[0]!r}", "", did_you_mean(unknown[0], TRUST))
    if isinstance(ref, nn.Module):
        return from_module(ref, tokenizer)
    code = "remote-code" in trust
    store = None if trust else store
    wanted, place = _dtype_called(dtype), device_called(device)
    place_of_files = source(str(ref))
    called = name or str(ref)
    only_cached = hub.only_cached(place_of_files)

    def load() -> LoadedModel:
        with _quiet():
            module = _read(str(ref), place_of_files, wanted, only_cached=only_cached, trust=trust)
            own = tokenizer if tokenizer is not None and not isinstance(tokenizer, str | Path) else None
            if own is None:
                own = _read_tokenizer(
                    str(ref), str(tokenizer) if tokenizer is not None else place_of_files, code=code
                )
        module = module.eval().requires_grad_(False)
        if not _is_quantised(module):
            module = module.to(place)
        loaded = from_module(module, own, called)
        return loaded if code else lazy.identified(loaded)  # weights do not tell what its own code computes

    def words() -> Any:
        with _quiet():
            return _read_tokenizer(str(ref), place_of_files)

    folder = (
        hub.snapshot(place_of_files, only_cached=only_cached)
        if store is not None and tokenizer is None
        else None
    )
    files = None if folder is None or store is None else lazy.files_of(folder, store)
    if store is None or files is None:
        return load()
    description = {**files, "dtype": str(wanted).removeprefix("torch."), "device": place.type}
    return lazy.remembered(store, description, name=called, device=place, load=load, tokenizer=words)


def from_module(
    module: nn.Module, tokenizer: Any = None, name: str = "in-memory", adapter: Adapter | None = None
) -> LoadedModel:
    """Wrap a causal language model that is in memory already, as a trainer holds it.

    The module is only looked at: its training mode, ``requires_grad`` flags and hooks stay as they are.
    Measurements put it into evaluation mode with frozen parameters for their own length
    (`LoadedModel.measuring`) and restore both. The fingerprint is that of the weights now: wrap again after a step
    of training.

    Raises
    ------
    UnsupportedModel
        For an architecture without an adapter, an encoder, a module without its unembedding, PEFT or FSDP wrappers.
    LoadError
        For weights that are absent or not finite, and for a configuration or tokenizer that contradicts them.
    """
    module = checks.unwrap(module)
    if adapter is None:
        adapter = checks.find_adapter(getattr(module, "config", None), type(module).__name__)
    adapter = checks.fitted(module, adapter)
    checks.check_paths(module, adapter)
    checks.check_offload(module)
    checks.check_weights(module)
    layout = checks.layout_of(module, adapter)
    checks.check_tokenizer(module, tokenizer)
    return LoadedModel(
        module=module,
        tokenizer=tokenizer,
        adapter=adapter,
        layout=layout,
        name=name,
        fingerprint=fingerprint(module),
        device=next(module.parameters()).device,
        dtype=_dtype(module),
        quantised=_is_quantised(module),
        versions=marks(module),
    )


def source(name: str) -> str:
    """What transformers is given: a directory or a hub id; a revision of a hub id is the directory of its files."""
    if name.startswith("zoo:"):
        from circuittest import zoo

        return str(zoo.path(name.removeprefix("zoo:")))
    path = Path(name).expanduser()
    if path.is_file():
        if gguf.is_gguf(path):
            with _quiet():
                return str(gguf.converted(path))
        raise LoadError(
            f"{name} is neither a directory nor a GGUF file",
            "weights alone do not say what to build",
            "name the directory that holds config.json and the weights",
        )
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise LoadError(
                f"{name} has no config.json",
                "it is not a directory that save_pretrained wrote",
                "name the directory that holds config.json and the weights",
            )
        return str(path)
    local = path.is_absolute() or name.startswith((".", "~")) or "\\" in name
    repository, _, revision = name.partition("@")
    if revision and not local and repository.count("/") <= 1:
        with _quiet():
            return str(hub.revision(repository, revision))
    if local or path.suffix or name.count("/") > 1:
        raise LoadError(f"there is no file or directory {name!r}", "", "check the path")
    return name


def _read(
    name: str, source: str, dtype: torch.dtype, *, only_cached: bool, trust: Collection[str] = ()
) -> nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        code = "remote-code" in trust
        config = AutoConfig.from_pretrained(source, trust_remote_code=code, local_files_only=only_cached)
        checks.find_adapter(config, name)  # before gigabytes are downloaded
        module, info = AutoModelForCausalLM.from_pretrained(
            source,
            config=config,
            dtype=dtype,
            use_safetensors=None if "pickle" in trust else True,
            trust_remote_code=code,
            local_files_only=only_cached,
            output_loading_info=True,
        )
    except CircuittestError:
        raise
    except Exception as error:  # transformers has no common base for its errors
        raise _explained(name, error) from error
    if dtype == torch.float64 and hasattr(module, "set_experts_implementation"):
        with contextlib.suppress(ValueError, NotImplementedError):
            module.set_experts_implementation("eager")  # the fused experts have no float64
    if missing := sorted(info["missing_keys"]):
        raise LoadError(
            f"the checkpoint of {name} lacks {len(missing)} weights, first {missing[0]!r}",
            "transformers would draw them at random",
            "load a complete checkpoint of the causal language model",
        )
    if mismatched := sorted(str(key) for key in info.get("mismatched_keys") or ()):
        raise LoadError(f"weight {mismatched[0]} of {name} has another shape than its config says")
    return module


def _read_tokenizer(name: str, source: str, *, code: bool = False) -> Any:
    from transformers import AutoTokenizer

    remedy = "save the tokenizer beside the model, or pass tokenizer="
    try:
        only_cached = hub.only_cached(source)
        found = AutoTokenizer.from_pretrained(source, trust_remote_code=code, local_files_only=only_cached)
    except Exception as error:  # as above
        raise LoadError(f"cannot load a tokenizer for {name}", _first_line(error), remedy) from error
    if len(found) - len(found.get_added_vocab()) < 2:  # what transformers makes up where there are no files
        raise LoadError(f"there is no tokenizer for {name}", "the one found has no words", remedy)
    if how := own_tokenizer.difference(found, source, only_cached=only_cached):
        _LOG.warning(
            "transformers loads %s for %s in place of the tokenizer that lies beside it (tokenizer.json): %s. "
            "If the file is right, pass tokenizer=PreTrainedTokenizerFast.from_pretrained(%r)",
            type(found).__name__,
            name,
            how,
            source,
        )
    return found


def _explained(name: str, error: Exception) -> LoadError:
    text = str(error)
    if "does not recognize this architecture" in text or "Unrecognized configuration" in text:
        return UnsupportedModel(
            f"transformers does not know the architecture of {name}",
            _first_line(error),
            "upgrade transformers, or register the architecture with it and an adapter with circuittest",
        )
    if "trust_remote_code" in text:
        return LoadError(
            f"{name} needs code that comes with the model",
            "circuittest runs such code only where it is asked to",
            "read it, and then give --circuit-trust=remote-code, or load the module yourself and pass it in memory",
        )
    if type(error).__name__ == "SafetensorError":
        return LoadError(
            f"cannot read the weights of {name}",
            f"a file of weights is cut short or damaged (SafetensorError: {_first_line(error)})",
            "copy or download the checkpoint again, or write it again with save_pretrained",
        )
    if "safetensors" in text and "couldn't connect" not in text.lower():
        return LoadError(
            f"cannot read the weights of {name}",
            f"only whole safetensors files are read ({_first_line(error)})",
            "save the model again with save_pretrained, download it again, or give --circuit-trust=pickle for a "
            "pytorch_model.bin that you trust",
        )
    if "connect" in text or "offline" in text.lower():
        return LoadError(
            f"cannot find {name!r}",
            "there is no such directory here, it is not in the Hugging Face cache, and the hub cannot be reached",
            "check the spelling, name a local directory, or download the model first",
        )
    if isinstance(error, OSError):
        return LoadError(
            f"cannot find or read {name!r}",
            _first_line(error),
            "check the name, and your access if it is gated",
        )
    return LoadError(
        f"transformers cannot load {name!r}",
        f"{type(error).__name__}: {_first_line(error)}",
        "see the cause above",
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars, only errors of transformers, no retries of the hub; all settings are put back."""
    from transformers.utils import logging as theirs

    hub = logging.getLogger("huggingface_hub")
    verbosity, bars, level = theirs.get_verbosity(), theirs.is_progress_bar_enabled(), hub.level
    theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)
        theirs.set_verbosity(verbosity)
        if bars:
            theirs.enable_progress_bar()


def _dtype_called(dtype: str | torch.dtype) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        dtype = str(dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}", "", did_you_mean(str(dtype), _DTYPES))
    return _DTYPES[dtype]


def device_called(device: str | torch.device) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        raise UsageError(f"unknown device {device!r}", "", "write auto, cpu, cuda, cuda:1 or mps") from None
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (found.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(found.type, True):
        raise LoadError(f"there is no device {str(found)!r} here", "torch does not see it", "use auto or cpu")
    return found


def _is_quantised(module: nn.Module) -> bool:
    method = getattr(getattr(module.config, "quantization_config", None), "quant_method", None)
    if method != "gguf" and getattr(module, "hf_quantizer", None) is not None:
        return True  # what is read from GGUF is marked too, although its weights are whole again
    return any(not parameter.is_floating_point() for parameter in module.parameters())


def _dtype(module: nn.Module) -> torch.dtype:
    """The dtype of most floating-point weights."""
    sizes: Counter[torch.dtype] = Counter()
    for parameter in module.parameters():
        if parameter.is_floating_point():
            sizes[parameter.dtype] += parameter.numel()
    return sizes.most_common(1)[0][0] if sizes else torch.get_default_dtype()
