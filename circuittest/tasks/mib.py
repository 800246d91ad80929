"""Rows of the data sets of MIB, the Mechanistic Interpretability Benchmark (Mueller et al. 2025, arXiv:2504.13151).

A row has a ``prompt`` and one or more counterfactuals, columns whose names end in ``_counterfactual``, each with a
``prompt`` of its own. What is right stands in one of three forms:

- ``metadata``: ``{"indirect_object", "subject", …}`` (IOI): the answer is the indirect object, the foil the subject,
  which is the answer of the counterfactual ``s2_io_flip_counterfactual``;
- ``choices`` ``{"label": […], "text": […]}`` with ``answerKey``, the place of the right label (CopyColors, ARC);
- ``label``, and ``operator`` (arithmetic).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from circuittest.errors import TaskError
from circuittest.tasks.base import Example, Feature

SUFFIX = "_counterfactual"
#: Which counterfactual is taken where there are several: those that the benchmark takes, then the first with an answer.
PREFERRED = ("s2_io_flip_counterfactual", "symbol_counterfactual", "random_counterfactual")


def is_mib(given: object) -> bool:
    """Does a row look like one of MIB's?"""
    return (
        isinstance(given, Mapping) and isinstance(given.get("prompt"), str) and bool(_counterfactuals(given))
    )


def read_mib(given: Any, where: str) -> Example:
    """An example from a row. The answer gets a leading space unless it has one or the prompt ends in white space.

    Raises
    ------
    TaskError
        For a row without a counterfactual that has an answer; the message begins with `where`.
    """
    if not isinstance(given, Mapping) or not isinstance(given.get("prompt"), str):
        raise TaskError(
            f"{where} has no prompt", "its first row is one of MIB's", "give all rows the same columns"
        )
    found = _counterfactuals(given)
    names = [*(name for name in PREFERRED if name in found), *sorted(set(found) - set(PREFERRED))]
    answers = {name: text for name in names if (text := _answer_of_counterfactual(given, name)) is not None}
    right = _answer(given)
    if right is None or not answers:
        what = "no answer" if right is None else "no counterfactual whose answer is known"
        raise TaskError(
            f"{where} has {what}",
            "an answer is metadata.indirect_object, choices with answerKey, or label",
            "leave the row out, or write prompt, answer and counterfactual yourself",
        )
    name, other = next(iter(answers.items()))
    prompt, there = given["prompt"], found[name]["prompt"]
    if right == other:
        raise TaskError(
            f"{where}: prompt and {name} have the same answer {right!r}", "nothing would be contrasted"
        )
    labels = [text for text in _labels(given) if text != right]
    return Example(
        prompt=prompt,
        answers=(_spaced(right, prompt),),
        foils=tuple(_spaced(text, prompt) for text in labels or [other]),
        counterfactual=there,
        counterfactual_answers=(_spaced(other, there),),
        features=_features(given, name),
        group=_group(given),
    )


def _counterfactuals(given: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {
        name: value
        for name, value in given.items()
        if isinstance(name, str)
        and name.endswith(SUFFIX)
        and isinstance(value, Mapping)
        and isinstance(value.get("prompt"), str)
    }


def _answer(given: Mapping[str, Any]) -> str | None:
    people = given.get("metadata")
    if isinstance(people, Mapping) and isinstance(people.get("indirect_object"), str):
        return str(people["indirect_object"])
    labels, key = _labels(given), given.get("answerKey")
    if labels:
        if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(labels):
            return labels[key]
        return key if isinstance(key, str) and key in labels else None
    label = given.get("label")
    return str(label) if isinstance(label, (str, int)) and not isinstance(label, bool) else None


def _answer_of_counterfactual(given: Mapping[str, Any], name: str) -> str | None:
    if (found := _answer(given[name])) is not None:
        return found
    people = given.get("metadata")
    if (
        name == "s2_io_flip_counterfactual"
        and isinstance(people, Mapping)
        and isinstance(people.get("subject"), str)
    ):
        return str(people["subject"])
    return None


def _labels(given: Mapping[str, Any]) -> list[str]:
    choices = given.get("choices")
    labels = choices.get("label") if isinstance(choices, Mapping) else None
    return [str(label) for label in labels] if isinstance(labels, list) else []


def _spaced(answer: str, prompt: str) -> str:
    return answer if answer[:1].isspace() or prompt[-1:].isspace() else f" {answer}"


def _features(given: Mapping[str, Any], name: str) -> dict[str, Feature]:
    """The counterfactual's name, and the columns that hold one plain value, other than the answer."""
    plain: dict[str, Feature] = {"counterfactual": name.removesuffix(SUFFIX)}
    for key, value in given.items():
        if (
            key not in ("prompt", "label", "answerKey", "id")
            and isinstance(value, (str, int))
            and str(key).isidentifier()
        ):
            plain[str(key)] = value
    return plain


def _group(given: Mapping[str, Any]) -> str:
    people = given.get("metadata")
    if not isinstance(people, Mapping) or "indirect_object" not in people:
        return ""
    return " ".join(sorted((str(people["indirect_object"]), str(people.get("subject", "")))))
