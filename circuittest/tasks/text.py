"""Running text as a task, predicting the true next token: what an ablation costs beside the behaviour of a task."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from circuittest.errors import TaskError
from circuittest.tasks.base import Example
from circuittest.tasks.encode import Ids, Item
from circuittest.tasks.prefix import resolve_prefix
from circuittest.tasks.prepare import TaskData

#: Tokens of a window, the one to be predicted included.
WINDOW = 32


def text_data(path: str | Path, tokenizer: Any, *, count: int = 200, prefix: str = "auto") -> TaskData:
    """Windows of a text file, in turn for discovery and for evaluation, each with its true next token as the answer.

    The file is cut into windows of `WINDOW` tokens that do not overlap; of more than ``2 count`` windows, that many are
    taken evenly over the file. Neighbouring windows lie in different splits.

    Raises
    ------
    TaskError
        For a file that cannot be read, holds too little text, or holds words that the tokenizer does not know.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read the text {path}", str(error)) from error
    name, start = resolve_prefix(tokenizer, prefix)
    ids: Ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is not None and unknown in ids:
        raise TaskError(
            f"the text {path} holds words that the tokenizer does not know", "", "take another text"
        )
    windows = [ids[i : i + WINDOW] for i in range(0, len(ids) - WINDOW + 1, WINDOW)]
    if len(windows) > 2 * count:
        windows = [windows[i * len(windows) // (2 * count)] for i in range(2 * count)]
    distinct = list(dict.fromkeys(windows))
    if len(distinct) < 4:
        raise TaskError(
            f"the text {path} gives {len(distinct)} different windows of {WINDOW} tokens",
            "",
            "take a longer text",
        )
    items = [_item(index, (*start, *window[:-1]), window[-1]) for index, window in enumerate(distinct)]
    return TaskData(
        task=f"text {Path(path).name}",
        seed=0,
        prefix=start,
        prefix_name=name,
        discover=tuple(items[1::2]),
        evaluate=tuple(items[::2]),
        dropped=MappingProxyType({}),
        chance=0.0,
        accuracy="argmax",
        metric="log_prob",
        digest=sha256(text.encode()).hexdigest()[:12],
    )


def _item(index: int, prompt: Ids, answer: int) -> Item:
    return Item(
        index, prompt, prompt, (answer,), (), (answer,), MappingProxyType({}), "", Example("", (), (), "", ())
    )
