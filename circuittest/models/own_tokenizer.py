"""Is the tokenizer that transformers loads the one whose tokenizer.json lies beside the model?

Since version 5 AutoTokenizer builds some architectures' tokenizers (Qwen2's among them) by the class that their
``model_type`` names, with that class's own pre-tokenizer, even where the directory holds another. The ids would then
be those of other tokens, or none at all, without an error.
"""

from __future__ import annotations

import json
from typing import Any

#: Words, numbers, spaces, punctuation, scripts, lines: what pre-tokenizers and normalizers treat differently.
PROBES = (
    "When Mary and John went to the store, John gave a drink to",
    "it isn't he'LL they've  two  spaces\tand a tab\n\nnew lines \n end ",
    '12 + 345=357; 1,000.50 (x_1 != y2) {"key": [0.5e-3]} http://a.b/c?d=e',
    "Größe naïve ﬁne e\u0301 Ελλάδα Привет 你好,世界 한국어 مرحبا 🙂👍🏽",
    " leading, CamelCase snake_case UPPER …—“quotes”",
)


def difference(loaded: Any, source: str, *, only_cached: bool = False) -> str:
    """How a tokenizer differs from the tokenizer.json of its directory or hub id; empty where it does not.

    Compared are the vocabulary and, where any part before the merges differs, what becomes of a few texts. A
    tokenizer without such a file cannot be compared, and counts as the same.
    """
    from tokenizers import Tokenizer
    from transformers.utils import cached_file

    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        return ""
    file = cached_file(
        source,
        "tokenizer.json",
        local_files_only=only_cached,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if file is None:
        return ""
    own = Tokenizer.from_file(file)
    theirs, here = own.get_vocab(with_added_tokens=False), backend.get_vocab(with_added_tokens=False)
    if theirs != here:
        missing = len(theirs.keys() - here.keys())
        moved = sum(here[word] != at for word, at in theirs.items() if word in here)
        return f"{missing} of its {len(theirs)} words are missing and {moved} have other ids"
    if _parts(own) == _parts(backend):
        return ""
    for text in (*PROBES, " ".join(sorted(theirs, key=lambda word: theirs[word])[-8:])):
        expected = own.encode(text, add_special_tokens=False).ids
        found = loaded(text, add_special_tokens=False)["input_ids"]
        if expected != found:
            return f"{text[:30]!r} becomes {_few(found)}, not {_few(expected)}"
    return ""


def _parts(tokenizer: Any) -> tuple[Any, ...]:
    """What stands before the model, and the model's own switches, without its words."""
    state = json.loads(tokenizer.to_str())
    model = {key: value for key, value in state["model"].items() if key != "vocab"}
    return state["normalizer"], state["pre_tokenizer"], model


def _few(ids: list[int]) -> str:
    return "no tokens" if not ids else f"{ids[:6]}{'…' if len(ids) > 6 else ''}"
