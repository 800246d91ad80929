"""Chains of thought that the model writes itself: ``sports_understanding+chain+3shots+written``.

The task's prompts end after a chain of its own. Here each is cut where the chain begins, the untouched model writes on
greedily until it comes to the words before the answer, and what it wrote stands in the chain's place. The same is done
with the counterfactual. What is judged, and attributed, then is the answer after the model's own chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from circuittest.errors import TaskError
from circuittest.tasks.encode import REASONS, Dropped, Encoder, Ids, Item
from circuittest.tasks.frame import GAP, Posed

if TYPE_CHECKING:
    from circuittest.models.loaded import LoadedModel
    from circuittest.tasks import TaskData

#: Tokens that a chain may have. Those of the solved examples have about thirty.
MOST = 80


def write_chains(model: LoadedModel, posed: Posed, data: TaskData, *, most: int = MOST) -> TaskData:
    """The same examples, each after a chain of the model's own in prompt and counterfactual.

    Left out, and counted in ``dropped``: an example one of whose two chains does not come to its answer within `most`
    tokens (``unfinished``) or is split in another way when it is read again (``respelled``), or whose chains differ in
    length (``length``); so there can be fewer than were asked. The right answers stay those of the task, whatever
    the chains say. Features get ``chain_as_shown``: did the model write the chain that the task would have written?

    Raises
    ------
    TaskError
        The prompts hold no chain, or a split that had examples has none left.
    """
    from circuittest.measure.generation import greedy

    opens, closes = posed.task.chain or ("", "")
    encoder = Encoder(
        model.tokenizer,
        data.prefix,
        single_token=posed.task.single_token,
        partial=posed.task.partial,
        whole=data.answers == "whole",
    )
    heads: dict[str, Ids] = {}
    for item in (*data.discover, *data.evaluate):
        for text in (item.example.prompt, item.example.counterfactual):
            head = _head(text, opens, data)
            heads.setdefault(head, (*data.prefix, *_ids(model.tokenizer, head)))
    pen = _Pen(model.tokenizer, next(iter(heads.values()))[-1:], closes)  # all end with the same words
    made = greedy(model, list(heads.values()), most=most, done=pen.done)
    chains = {head: pen.text(tokens) for head, tokens in zip(heads, made, strict=True)}
    written = {head: heads[head] + tokens for head, tokens in zip(heads, made, strict=True)}
    dropped, seen = Counter(data.dropped), dict[str, str]()

    def rewritten(item: Item) -> Item | Dropped:
        texts, ids = [], []
        for text in (item.example.prompt, item.example.counterfactual):
            head = _head(text, opens, data)
            if not chains[head].endswith(closes):
                return Dropped("unfinished", repr(chains[head]))
            texts.append(head + chains[head])
            ids.append(written[head])
        found = encoder.encode(replace(item.example, prompt=texts[0], counterfactual=texts[1]))
        if isinstance(found, Dropped):
            return found
        if [found.prompt_ids, found.counterfactual_ids] != ids:
            return Dropped("respelled", repr(texts[0]))
        as_shown = texts[0] == item.example.prompt
        return replace(found, features=MappingProxyType({**item.features, "chain_as_shown": as_shown}))

    parts: dict[str, tuple[Item, ...]] = {}
    for split in ("discover", "evaluate"):
        items = []
        for item in getattr(data, split):
            one = rewritten(item)
            if isinstance(one, Dropped):
                dropped[one.reason] += 1
                seen.setdefault(one.reason, one.seen)
            else:
                items.append(one)
        parts[split] = tuple(items)
        if getattr(data, split) and not items:
            raise _none_left(posed.name, split, len(getattr(data, split)), dropped, seen)
    return replace(
        data,
        task=posed.name,
        discover=parts["discover"],
        evaluate=parts["evaluate"],
        dropped=MappingProxyType(dict(sorted(dropped.items()))),
    )


class _Pen:
    """What tokens after a prompt say, and whether a chain ends with them."""

    def __init__(self, tokenizer: Any, last: Ids, closes: str) -> None:
        self._tokenizer, self._closes = tokenizer, closes
        self._last = last  # some tokenizers leave out the space before what comes first
        self._before = len(self._show(self._last))

    def text(self, tokens: Ids) -> str:
        return self._show(self._last + tokens)[self._before :]

    def done(self, tokens: Ids) -> bool:
        """Has it come to the answer, to the end of the text, or to where a next example would begin?"""
        text = self.text(tokens)
        return tokens[-1] == self._tokenizer.eos_token_id or text.endswith(self._closes) or GAP in text

    def _show(self, tokens: Ids) -> str:
        return str(self._tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False))


def _head(text: str, opens: str, data: TaskData) -> str:
    """A prompt as far as the words with which its own chain begins, these included."""
    before, found, _ = text.rpartition(opens)
    # of the last solved example, where the prompt itself has no chain
    if not found or GAP in text[len(before) :]:
        raise TaskError(
            f"task {data.task!r} (variant {data.variant!r}) has no chain of thought",
            f"its prompts do not hold {opens!r}",
            "name the variant that has one, as in sports_understanding+chain+3shots+written",
        )
    return before + opens


def _ids(tokenizer: Any, text: str) -> Ids:
    return tuple(map(int, tokenizer(text, add_special_tokens=False)["input_ids"]))


def _none_left(
    name: str, split: str, count: int, dropped: Mapping[str, int], seen: Mapping[str, str]
) -> TaskError:
    counts = ", ".join(f"{reason} {dropped[reason]}" for reason in seen)
    reason = max(seen, key=lambda one: dropped[one])
    why, remedy = REASONS[reason]
    return TaskError(
        f"task {name!r}: none of the {count} examples to {split} is left with chains that the model wrote ({counts})",
        f"{why}; for instance {seen[reason]}",
        remedy,
    )
