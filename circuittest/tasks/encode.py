"""One example as one model sees it: token ids, answers resolved in context, or the reason why it cannot be
used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from circuittest.tasks.base import Example, Feature

Ids = tuple[int, ...]

# Candidate lists of at least MANY are resolved once per last ENDING characters of a prompt.
MANY, ENDING = 40, 16


@dataclass(frozen=True, slots=True)
class Item:
    """An example in token ids.

    ``prompt_ids`` and ``counterfactual_ids`` [tokens] hold the prefix and have one length. ``answer_ids``,
    ``foil_ids`` and ``counterfactual_answer_ids`` are the first tokens of the accepted continuations, in
    context, each once. Where whole answers are scored, ``answer_ids`` is the first token of the only answer,
    ``answer_rest`` its further ones, ``ends`` the ids that may follow it, and ``foil_ids`` is empty: foils
    are compared by first tokens.
    """

    index: int
    prompt_ids: Ids
    counterfactual_ids: Ids
    answer_ids: Ids
    foil_ids: Ids
    counterfactual_answer_ids: Ids
    features: Mapping[str, Feature]
    group: str
    example: Example
    answer_rest: Ids = ()
    ends: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Dropped:
    """An example that cannot be used: a key of ``REASONS``, and what was seen."""

    reason: str
    seen: str


# Per reason: why an example is dropped, and what to do if it hits all of them.
REASONS: Mapping[str, tuple[str, str]] = {
    "boundary": (
        "the tokens of the prompt change when the answer is appended",
        "end the prompt where a token ends: no trailing space, and the answer starts with one (' Paris'); a "
        "trailing space is right only where the answer is a token without a space, as digits often are",
    ),
    "no-answer": (
        "an answer, foil or counterfactual answer is missing or adds no token",
        "give each example at least one of each, none of them empty",
    ),
    "no-counterfactual": (
        "there is no counterfactual prompt",
        "give each example a prompt of the same length with another answer; attribution compares the two",
    ),
    "length": (
        "prompt and counterfactual differ in number of tokens",
        "use words that this tokenizer writes with equally many tokens; put a word in front of a name that "
        "starts the prompt",
    ),
    "shared-first-token": (
        "an answer and a foil start with the same token",
        "use answers and foils that differ in their first token, or another variant of the task",
    ),
    "same-answer": (
        "the counterfactual has the same answer",
        "change what decides the answer, so that the counterfactual answer starts with another token",
    ),
    "multi-token": (
        "an answer or foil is more than one token",
        "use answers that are single tokens of this tokenizer, another variant, or a task that scores first tokens",
    ),
    "several-answers": (
        "more than one answer is accepted",
        "give one answer: a whole answer is read token by token; or score first tokens",
    ),
    "unknown-token": (
        "the tokenizer writes a part of the text as its unknown token",
        "use words that the tokenizer knows; the zoo's knows only the words of the built-in tasks",
    ),
    "double-bos": (
        "the text itself starts with the prefix token or BOS (double BOS)",
        "take the special token out of the prompt; the prefix puts it there",
    ),
    "duplicate": (
        "its prompt came before",
        "ask for fewer examples, or add wordings",
    ),
    "unfinished": (
        "the model's chain of thought does not come to its answer",
        "put solved chains in front (+3shots), or take a model that can write them",
    ),
    "respelled": (
        "the tokenizer splits what the model wrote in another way than the model did",
        "take another model; what is read must be what was written",
    ),
    "shot": (
        "it is one of the solved examples in front, or they tell its answer",
        "ask for fewer shots",
    ),
}


class Encoder:
    """Turns examples into items for one tokenizer, which is called without special tokens and left as it is.

    A continuation's ids are those that prompt + continuation has beyond the prompt (never those of the word
    alone: ' Mary' and 'Mary' differ, and so do '33' alone and '33' after '17'). Long candidate lists (all
    years) are resolved once per ending of a prompt; each further prompt with the same ending is checked
    with the first and the last candidate. With ``whole`` answers of any number of tokens are kept whole.
    """

    def __init__(
        self,
        tokenizer: Any,
        prefix: Ids,
        *,
        single_token: bool,
        partial: bool = False,
        whole: bool = False,
    ) -> None:
        self.tokenizer, self.prefix = tokenizer, prefix
        self.single_token, self.partial, self.whole = single_token and not whole, partial, whole
        bos = tokenizer.bos_token_id
        self._special = {*prefix[:1], *([bos] if prefix and bos is not None else [])}
        self._resolved: dict[str, dict[str, Ids | Dropped]] = {}
        self._may_follow: frozenset[int] | None = None

    def encode(self, example: Example) -> Item | Dropped:
        """The item of an example, or why it is dropped."""
        right, foils, other = example.answers, example.foils, example.counterfactual_answers
        if not example.counterfactual:
            return Dropped("no-counterfactual", repr(example.prompt))
        if not (right and foils and other) or not all((*right, *foils, *other)):
            return Dropped("no-answer", repr(example.prompt))
        here = self._continue(example.prompt, (*right, *foils))
        if isinstance(here, Dropped):
            return here
        there = self._continue(example.counterfactual, other)
        if isinstance(there, Dropped):
            return there
        (prompt, here_tails), (counterfactual, there_tails) = here, there
        if len(prompt) != len(counterfactual):
            return Dropped("length", f"{self.show(prompt)} against {self.show(counterfactual)}")
        parts = here_tails[: len(right)], here_tails[len(right) :], there_tails
        for part in parts:
            if 2 * sum(isinstance(tail, tuple) for tail in part) < len(part):
                return next(tail for tail in part if isinstance(tail, Dropped))
        if self.whole:
            return self._whole(example, self.prefix + prompt, self.prefix + counterfactual, parts)
        answer_ids, foil_ids, other_ids = map(_first, parts)
        if set(answer_ids) & set(foil_ids):
            both = f"answers {self.show(answer_ids[:5])}, foils {self.show(foil_ids[:5])}"
            return Dropped("shared-first-token", both)
        if set(answer_ids) == set(other_ids):
            return Dropped("same-answer", self.show(answer_ids[:5]))
        return Item(
            index=example.index,
            prompt_ids=self.prefix + prompt,
            counterfactual_ids=self.prefix + counterfactual,
            answer_ids=answer_ids,
            foil_ids=foil_ids,
            counterfactual_answer_ids=other_ids,
            features=example.features,
            group=example.group,
            example=example,
        )

    def _whole(
        self,
        example: Example,
        prompt: Ids,
        counterfactual: Ids,
        parts: Sequence[Sequence[Ids | Dropped]],
    ) -> Item | Dropped:
        answers, foils, others = ({tail for tail in part if isinstance(tail, tuple)} for part in parts)
        if len(answers) > 1:
            return Dropped("several-answers", f"{example.answers[:5]} after {example.prompt!r}")
        (answer,) = answers
        if answer in foils:
            return Dropped("shared-first-token", f"{self.show(answer)} is answer and foil")
        if answers == others:
            return Dropped("same-answer", self.show(answer))
        return Item(
            index=example.index,
            prompt_ids=prompt,
            counterfactual_ids=counterfactual,
            answer_ids=answer[:1],
            foil_ids=(),
            counterfactual_answer_ids=_first(parts[2]),
            features=example.features,
            group=example.group,
            example=example,
            answer_rest=answer[1:],
            ends=self._ends(answer[-1]),
        )

    def _ends(self, last: int) -> frozenset[int]:
        """The ids that may follow an answer: those with which its last word or number does not go on.

        A token goes on with it when its text, after a token that ends an answer, begins with a letter or digit and no
        space (so '5' after '12', never ' 5', '.', a line break or a special token). Looked up once: what a tokenizer
        puts before a token does not depend on which word stands there.
        """
        if self._may_follow is None:
            show = lambda ids: self.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
            alone = show([last])
            special = set(self.tokenizer.all_special_ids)
            after = ((i, show([last, i])[len(alone) :]) for i in range(len(self.tokenizer)))
            self._may_follow = frozenset(
                i for i, text in after if i in special or not (text[:1].isalnum() and text)
            )
        return self._may_follow

    def show(self, ids: Sequence[int]) -> str:
        """Tokens one by one: [When| Mary| and]."""
        return f"[{'|'.join(map(str, self.tokenizer.convert_ids_to_tokens(list(ids))))}]"

    def _continue(
        self, prompt: str, candidates: tuple[str, ...]
    ) -> tuple[Ids, list[Ids | Dropped]] | Dropped:
        """Ids of the prompt, and of each candidate after it (with ``partial``: or why it is left out)."""
        known = self._resolved.setdefault(prompt[-ENDING:], {}) if len(candidates) >= MANY else {}
        ends = {candidates[0], candidates[-1]}
        chosen = [c for c in candidates if c in ends or c not in known]
        body, *rows = self._ids([prompt, *(prompt + c for c in chosen)])
        if body and body[0] in self._special:
            return Dropped("double-bos", self.show(body))
        found = {c: self._tail(body, row) for c, row in zip(chosen, rows, strict=True)}
        if any(_kind(known.get(c, tail)) != _kind(tail) for c, tail in found.items()):
            known.clear()  # this tokenizer looks further back than the ending
            return self._continue(prompt, candidates)
        known.update(found)
        tails = [known[c] for c in candidates]
        if not self.partial:
            for tail in tails:
                if isinstance(tail, Dropped):
                    return tail
        return body, tails

    def _tail(self, body: Ids, row: Ids) -> Ids | Dropped:
        """What ``row`` (prompt + candidate) has beyond ``body`` (prompt)."""
        tail = row[len(body) :]
        if self.tokenizer.unk_token_id in row:
            return Dropped("unknown-token", self.show(row))
        if row[: len(body)] != body:
            return Dropped("boundary", f"{self.show(body)} becomes {self.show(row)}")
        if not tail:
            return Dropped("no-answer", self.show(row))
        if self.single_token and len(tail) > 1:
            return Dropped("multi-token", self.show(tail))
        return tail

    def _ids(self, texts: list[str]) -> list[Ids]:
        return [tuple(map(int, row)) for row in self.tokenizer(texts, add_special_tokens=False)["input_ids"]]


def _first(tails: Sequence[Ids | Dropped]) -> Ids:
    return tuple(dict.fromkeys(tail[0] for tail in tails if isinstance(tail, tuple)))


def _kind(tail: Ids | Dropped) -> Ids | str:
    return tail.reason if isinstance(tail, Dropped) else tail
