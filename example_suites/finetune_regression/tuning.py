"""A real, if small, fine-tune: a few steps of AdamW on the lines of a text, the same on every run of one machine."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

TEXT = Path(__file__).with_name("harbour.txt")
STEPS, LINES, RATE = 8, 4, 2e-5


def tuned(module: Any, tokenizer: Any) -> Any:
    """A copy of a causal language model, trained for `STEPS` steps of `LINES` lines each, in evaluation mode."""
    import torch

    torch.manual_seed(0)
    found = copy.deepcopy(module).train().requires_grad_(True)
    optimiser = torch.optim.AdamW(found.parameters(), lr=RATE)
    lines = TEXT.read_text(encoding="utf-8").splitlines()
    for step in range(STEPS):
        chosen = [lines[(step * LINES + i) % len(lines)] for i in range(LINES)]
        for line in chosen:  # one at a time: no padding to get wrong
            ids = torch.tensor([tokenizer(line)["input_ids"]])
            (found(input_ids=ids, labels=ids).loss / LINES).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return found.eval().requires_grad_(False)
