"""The untrained twin: same architecture, other weights, and no trace in the global random state."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from circuittest.errors import UnsupportedModel
from circuittest.lab import Lab
from circuittest.models.untrained import untrained_twin
from tests.helpers import table_lab, tiny


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gpt_neox"])
def test_same_architecture_and_fresh_weights(architecture: str) -> None:
    model = tiny.build_loaded(architecture)
    state = torch.get_rng_state()
    twin, again, other = untrained_twin(model, 0), untrained_twin(model, 0), untrained_twin(model, 1)
    assert torch.equal(torch.get_rng_state(), state)
    assert twin.layout == model.layout
    assert twin.fingerprint == again.fingerprint
    assert len({model.fingerprint, twin.fingerprint, other.fingerprint}) == 3
    assert twin.name == f"{architecture} (untrained)"
    assert not any(p.requires_grad for p in twin.module.parameters())


def test_quantised_models_have_none() -> None:
    with pytest.raises(UnsupportedModel, match="no untrained twin"):
        untrained_twin(replace(tiny.build_loaded("gpt2"), quantised=True))


def lab() -> Lab:
    data = table_lab.task_data(6, 4)
    short = lambda ids: tuple(i % tiny.VOCAB for i in ids)
    items = [
        replace(
            item,
            prompt_ids=short((5 + item.index, 7, 9)),
            counterfactual_ids=short((6 + item.index, 8, 9)),
            answer_ids=(10,),
            foil_ids=(11,),
        )
        for item in (*data.discover, *data.evaluate)
    ]
    data = replace(data, discover=tuple(items[:6]), evaluate=tuple(items[6:]))
    return Lab(tiny.build_loaded("llama"), data)


def test_a_lab_has_scores_of_edges_and_a_twin_on_the_same_examples() -> None:
    own = lab()
    everything = own.scores(level="edges", universe="all")
    assert everything.members == tuple(own.layout.edges())
    heads = own.scores("evaluate", level="edges", universe="heads")
    assert {e.source.kind for e in heads.members} == {"head"}
    assert {e.target.kind for e in heads.members} == {"head", "kv"}
    # a unit's signed score is the sum over its outgoing edges
    nodes = own.scores(universe="all", score="node")
    sums = {str(u): 0.0 for u in nodes.members}
    for edge, value in zip(everything.members, everything.values[0], strict=True):
        if str(edge.source) in sums:
            sums[str(edge.source)] += float(value)
    assert list(sums.values()) == pytest.approx(nodes.values[0].tolist(), abs=1e-5)
    circuit = own.shared(level="edges", universe="all", top="10%", at=50)
    assert circuit.edges
    assert circuit.origin["level"] == "edges"
    twin = own.untrained()
    assert twin is own.untrained()
    assert twin.data is own.data
    assert twin.fingerprint != own.fingerprint
    assert twin.scores(level="edges", universe="all").values.shape == everything.values.shape
