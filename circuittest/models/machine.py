"""What decides the last bits of a sum besides its terms: the device, its instructions, threads and precision."""

from __future__ import annotations

import platform
from typing import Any

import torch


def machine(device: torch.device) -> dict[str, Any]:
    """In plain JSON types. Equal inputs give equal bytes on machines for which this is equal."""
    found: dict[str, Any] = {
        "device": device.type,
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
        "matmul": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if device.type == "cuda":
        found["processor"] = torch.cuda.get_device_name(device)
        found["cuda"] = str(torch.version.cuda)
        found["tf32"] = [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]
    else:
        found["instructions"] = torch.backends.cpu.get_cpu_capability()
        found["mkldnn"] = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return found
