"""Running text as a task: windows, their true next tokens, and texts that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuittest.errors import TaskError
from circuittest.lab import Lab
from circuittest.tasks.text import WINDOW, text_data
from tests.helpers import tiny


class Characters:
    """One token a character; Z is unknown."""

    unk_token_id = 0
    bos_token_id = 1

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [0 if c == "Z" else 2 + (ord(c) % 25) for c in text]}

    def convert_tokens_to_ids(self, token: str) -> int:
        return 0

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(i) for i in ids]

    def get_vocab(self) -> dict[str, int]:
        return {}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "words.txt"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def prose(length: int) -> str:
    return "".join(chr(97 + (i * i // 7 + i // 3) % 25) for i in range(length))


def test_windows_and_their_next_tokens(write: Any) -> None:
    text = prose(10 * WINDOW + 5)
    data = text_data(write(text), Characters(), prefix="bos")
    ids = Characters()(text)["input_ids"]
    assert (len(data.evaluate), len(data.discover)) == (5, 5)
    assert data.task == "text words.txt"
    first = data.evaluate[0]
    assert first.prompt_ids == (1, *ids[: WINDOW - 1])
    assert first.answer_ids == (ids[WINDOW - 1],)
    assert data.evaluate[1].prompt_ids[1:] == tuple(ids[2 * WINDOW : 3 * WINDOW - 1])
    assert not {item.prompt_ids for item in data.evaluate} & {item.prompt_ids for item in data.discover}
    assert len(text_data(write(text), Characters(), count=2, prefix="none").evaluate) == 2
    assert data.digest != text_data(write(text + prose(40)), Characters(), prefix="bos").digest


@pytest.mark.parametrize(
    ("text", "message"),
    [("abc", "0 different windows"), ("a" * 900, "1 different window"), (prose(400) + "Z", "does not know")],
)
def test_texts_that_cannot_be_used(write: Any, text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        text_data(write(text), Characters(), prefix="none")
    with pytest.raises(TaskError, match="cannot read"):
        text_data("/nowhere/at/all.txt", Characters())


def test_the_loss_of_a_model(write: Any) -> None:
    model = tiny.build_loaded("llama")
    lab = Lab(model, text_data(write(prose(12 * WINDOW)), Characters(), prefix="none"))
    found = lab.outcomes([()]).measure("log_prob")[0]
    ids = torch.tensor([item.prompt_ids for item in lab.data.evaluate])
    logits = model.module(ids).logits[:, -1].log_softmax(-1)
    expected = [float(row[item.answer_ids[0]]) for row, item in zip(logits, lab.data.evaluate, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
