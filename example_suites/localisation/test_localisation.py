"""Do grouped queries concentrate a circuit? Two bundled models that differ in their KV heads alone, on three tasks."""

import pytest

PAIR = ["zoo:gqa", "zoo:gqa-mha"]  # 8 query heads a layer over 2 and over 8 KV heads; else alike


def four(lab):
    """Four query heads as one unit: a KV group, or in the model without groups four neighbours."""
    return {"per": "kv"} if lab.layout.group_size > 1 else {"per": "group", "size": 4}


class OnTask:
    def test_four_heads_of_the_first_layer_come_first(self, lab):
        """In both models, so that it is not the sharing of keys and values that makes the first layer stand out."""
        found = lab.concentration(**four(lab))
        assert found.details["order"][0].startswith("L0.")
        assert found <= 4

    def test_one_head_is_less_than_four(self, lab):
        """Why a KV group must not be compared with a head: it is four of them."""
        heads = lab.concentration(statistic="top")
        fours = lab.concentration(statistic="top", **four(lab))
        assert float(fours) > float(heads)


@pytest.mark.circuit(model=PAIR, task="ioi", discover=100, evaluate=100)
class TestIOI(OnTask):
    """Indirect object identification."""


@pytest.mark.circuit(model=PAIR, task="induction", discover=100, evaluate=100)
class TestInduction(OnTask):
    """Repeated words."""


@pytest.mark.circuit(model=PAIR, task="facts", discover=100, evaluate=100)
class TestFacts(OnTask):
    """Facts that the models were trained on."""


def test_the_smallest_faithful_circuit(make_lab):
    """Of both models on IOI: a few percent of their own edges, judged on examples that did not choose them."""
    for name in PAIR:
        lab = make_lab(model=name, task="ioi", discover=60, evaluate=60)
        found = lab.minimal(faithfulness=0.8, cap="10%")
        assert found.reached, found.reason
        assert lab.sufficiency(found.circuit) >= 0.7
