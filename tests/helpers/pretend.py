"""A machine with two devices that is not there: "pretend:0" and "pretend:1".

Tensors on them are held on the CPU and refuse what tensors on two GPUs refuse: an operation whose operands are on different
devices. It shows that models spread over devices are measured without one. Importing this changes the process (PyTorch has
one such place for all), so tests run it in a process of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME, COUNT = "pretend", 2


class _Module:
    """What PyTorch asks of the module of a kind of device."""

    is_initialized = is_available = staticmethod(lambda: True)
    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: COUNT)
    manual_seed_all = staticmethod(lambda seed: None)
    _is_in_bad_fork = staticmethod(lambda: False)


_setup_privateuseone_for_python_backend(NAME, backend_module=_Module())


class Pretended(torch.Tensor):
    """A tensor that says it is on one of the devices."""

    raw: torch.Tensor

    @staticmethod
    def __new__(cls: type[Pretended], raw: torch.Tensor, device: torch.device) -> Pretended:
        made: Pretended = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=device,
            requires_grad=raw.requires_grad,
        )
        made.raw = raw
        return made

    def data_ptr(self) -> int:
        return self.raw.data_ptr()

    def tolist(self) -> Any:
        return self.raw.tolist()

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        device = _device_of(function, args, kwargs)
        here = {
            name: torch.device("cpu") if name == "device" and value else value
            for name, value in kwargs.items()
        }
        found = function(*tree_map(_raw, args), **tree_map(_raw, here))
        if function._schema.is_mutable:
            changed: Any = args[0] if "out" not in kwargs else kwargs["out"]
            if isinstance(changed, Pretended) and changed.shape != changed.raw.shape:
                raise NotImplementedError(f"{function} changes the shape of a tensor")
            return changed
        return tree_map(lambda value: _on(device, value), found)


def _device_of(function: Any, args: Any, kwargs: dict[str, Any]) -> torch.device:
    """Where the result is. Raises RuntimeError for operands of different devices."""
    name = function._schema.name
    if name == "aten::copy_":
        return args[0].device
    asked = kwargs.get("device")
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    devices = _named(value.device for value in tensors if value.dim() or value.device.type != "cpu")
    if asked is not None:
        return torch.device(asked)
    if name in ("aten::index_put_", "aten::index_put", "aten::index"):  # these take indices from the CPU, too
        devices = _named(
            value.device for value in tensors if value is tensors[0] or value.device.type != "cpu"
        )
    if len(devices) > 1:
        raise RuntimeError(f"{name}: expected all tensors on one device, found {devices}")
    return torch.device(devices[0] if devices else "cpu")


def _named(devices: Iterable[torch.device]) -> list[str]:
    return sorted({str(device) for device in devices})


def _raw(value: Any) -> Any:
    return value.raw if isinstance(value, Pretended) else value


def _on(device: torch.device, value: Any) -> Any:
    if device.type != NAME or not isinstance(value, torch.Tensor) or isinstance(value, Pretended):
        return value
    return Pretended(value, device if device.index is not None else torch.device(NAME, 0))


def _made(name: str) -> Any:
    packet, overload = name.split(".") if "." in name else (name, "default")
    operator = getattr(getattr(torch.ops.aten, packet), overload)

    def make(*args: Any, **kwargs: Any) -> Any:
        return _on(
            torch.device(kwargs["device"]), operator(*args, **{**kwargs, "device": torch.device("cpu")})
        )

    return make


def _copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:
    _raw(target).copy_(_raw(source))
    return target


_library = torch.library.Library("aten", "IMPL")
_ranges = ("arange", "arange.start", "arange.start_step")
for _name in ("empty.memory_format", "empty_strided", "eye", "eye.m", *_ranges):
    _library.impl(_name, _made(_name), "PrivateUse1")
_library.impl("_copy_from", _copy_from, "PrivateUse1")
