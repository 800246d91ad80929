"""Sports understanding in token ids, and that its lists are what they have to be."""

from __future__ import annotations

from itertools import islice

import pytest

from circuittest.tasks import Posed, get_task, prepare
from circuittest.tasks.sports_understanding import ACTIONS, ATHLETES

from .toy_tokenizers import word_level


def test_no_athlete_or_action_is_of_two_sports() -> None:
    for table in (ATHLETES, ACTIONS):
        listed = [one for of_sport in table.values() for one in of_sport]
        assert len(set(listed)) == len(listed)
    assert {len(action.split()) for actions in ACTIONS.values() for action in actions} == {4}
    assert list(ATHLETES) == list(ACTIONS)


@pytest.mark.parametrize("variant", ["direct", "chain"])
def test_items_and_solved_examples(variant: str) -> None:
    texts = [
        f"{e.prompt} {e.counterfactual}"
        for pool in ("test", "train")
        for e in islice(get_task("sports_understanding", pool=pool).stream(1, variant), 1500)
    ]
    tokenizer = word_level(" ".join(["yes no", *texts]))
    data = prepare(
        Posed("sports_understanding", shots=3, variant=variant), tokenizer, discover=10, evaluate=40
    )
    assert data.variant == variant
    assert data.dropped["shot"] > 0
    head = "".join(f"{prompt}{answer}\n\n" for prompt, answer in data.shots)
    assert head.count("step by step") == (3 if variant == "chain" else 0)
    shown = {name for people in ATHLETES.values() for name in people if name in head}
    yes = 0
    for item in data.evaluate:
        assert item.example.prompt.startswith(head)
        assert item.features["athlete"] not in shown
        assert len(item.prompt_ids) == len(item.counterfactual_ids)
        assert item.answer_ids == (
            tokenizer.convert_tokens_to_ids("yes" if item.features["plausible"] else "no"),
        )
        assert item.foil_ids == item.counterfactual_answer_ids
        yes += bool(item.features["plausible"])
    assert 8 <= yes <= 32
