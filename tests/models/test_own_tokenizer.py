"""A tokenizer other than the one that lies beside the model is told, and how the two differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, normalizers
from transformers import PreTrainedTokenizerFast

from circuittest.models import load_model, own_tokenizer
from tests.helpers.tiny import build, save, tokenizer

pytestmark = pytest.mark.usefixtures("offline")


def test_a_tokenizer_that_is_not_the_one_beside_the_model_is_told(
    directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(
        build("qwen2"), tmp_path
    )  # transformers builds a Qwen2Tokenizer from these words, which splits otherwise
    load_model(directory)
    load_model(tmp_path, tokenizer=PreTrainedTokenizerFast.from_pretrained(tmp_path))
    assert not caplog.records
    model = load_model(tmp_path)
    if model.tokenizer("w5 w7")["input_ids"] == [5, 7]:
        assert not caplog.records
        pytest.skip("this transformers keeps the tokenizer that lies beside the model")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    said = record.getMessage()
    assert "transformers loads Qwen2Tokenizer" in said
    assert "'When Mary and John went to the' becomes" in said
    assert f"pass tokenizer=PreTrainedTokenizerFast.from_pretrained('{tmp_path}')" in said


def test_how_tokenizers_differ(tmp_path: Path) -> None:
    own = tokenizer()
    own.save_pretrained(tmp_path)
    assert own_tokenizer.difference(tokenizer(), str(tmp_path)) == ""
    state = json.loads((tmp_path / "tokenizer.json").read_text())
    words = state["model"]["vocab"]
    for change, said in (
        ({"w7": 8, "w8": 7}, "0 of its 40 words are missing and 2 have other ids"),
        ({"w39": None}, "1 of its 40 words are missing and 0 have other ids"),
    ):
        new = {word: at for word, at in {**words, **change}.items() if at is not None}
        loaded = Tokenizer.from_str(json.dumps({**state, "model": {**state["model"], "vocab": new}}))
        assert (
            own_tokenizer.difference(PreTrainedTokenizerFast(tokenizer_object=loaded), str(tmp_path)) == said
        )
    loaded = tokenizer()
    loaded.backend_tokenizer.normalizer = normalizers.Replace("w", "v")
    assert own_tokenizer.difference(loaded, str(tmp_path)).endswith(
        "becomes [0, 0, 0, 0, 0, 0]…, not [32, 33, 34, 35, 36, 37]…"
    )
    loaded.backend_tokenizer.normalizer = normalizers.Replace("☃", "x")  # another pipeline, the same ids
    assert own_tokenizer.difference(loaded, str(tmp_path)) == ""
