"""path_patch(): against the three runs of its papers, and its special cases."""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache

import numpy as np
import pytest
import torch

from circuittest.errors import InterventionError, UnsupportedModel, UsageError
from circuittest.measure import paths as module
from circuittest.measure.ablation import ablate
from circuittest.measure.patching import patch
from circuittest.measure.paths import carriers, path_patch
from circuittest.models.hooks import count
from circuittest.models.loaded import LoadedModel
from circuittest.paths import Paths, leaving
from circuittest.tables import OutcomeTable
from circuittest.units import Edge, Layout, Unit
from tests.helpers import tiny
from tests.helpers.by_hooks import ByHooks
from tests.helpers.items import FakeItem, random_items

REFERENCED = ("gpt2", "gpt_neox", "gpt_neox_sequential", "llama", "qwen2", "gemma3_text", "olmo2", "gemma2")
ITEMS = random_items(2, (6, 7))
GQA = Layout(n_layers=3, n_heads=4, n_kv_heads=2)


@lru_cache
def model_of(architecture: str) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=torch.float64)


def groups_of(layout: Layout) -> list[Paths]:
    """Senders and receivers of every kind; receivers of one layer."""
    last = Unit("kv", 2, layout.n_kv_heads - 1)
    return [
        Paths.of(layout, senders, receivers)
        for senders, receivers in [
            (["L0.H1"], ["L2.H3.q"]),
            (["L0.H0", "L0.H2", "L1.H3"], [f"{last}.k"]),
            (["L1.H1", "L0.MLP"], [f"{last}.v", "L2.H0.q"]),
            (["embed"], ["L2.MLP"]),
            (["L0.H0", "L0.H1"], ["L1.MLP"]),
            (["L1.ATTN"], ["L2.ATTN"]),
            (["L0.H3", "L2.H1"], ["logits"]),
            (["L1.MLP"], ["logits"]),
        ]
    ]


def expected(model: LoadedModel, architecture: str, item: FakeItem, path: Paths, mlps: str) -> float:
    layout = model.layout
    plain = ByHooks(model.module, architecture, layout.n_heads, layout.n_kv_heads, model.head_dim)
    logits = plain.logits(
        item.prompt_ids,
        item.counterfactual_ids,
        path.senders,
        list(path.receivers),
        recompute=mlps == "recomputed",
    )
    return float(logits[list(item.answer_ids)].mean() - logits[list(item.foil_ids)].mean())


def effects(table: OutcomeTable, clean: OutcomeTable) -> np.ndarray:
    return table.columns["logit_diff"] - clean.columns["logit_diff"][0]


@pytest.mark.parametrize("mlps", ["frozen", "recomputed"])
@pytest.mark.parametrize("architecture", tiny.marked(REFERENCED))
def test_a_path_is_three_runs_with_plain_hooks(architecture: str, mlps: str) -> None:
    model = model_of(architecture)
    paths = groups_of(model.layout)
    table = path_patch(model, ITEMS, paths, mlps=mlps)
    for column, item in enumerate(ITEMS):
        for row, path in enumerate(paths):
            found = table.columns["logit_diff"][row, column]
            assert found == pytest.approx(
                expected(model, architecture, item, path, mlps), abs=1e-11, rel=0
            ), (path.edges[0], mlps)
    assert (np.abs(effects(table, ablate(model, ITEMS, [()]))).max(1) > 1e-4).all()


@pytest.mark.parametrize("architecture", ["gpt2", "gpt_neox", "llama", "gemma3_text"])
def test_mlps_between_pass_on_what_they_read_only_where_they_are_recomputed(architecture: str) -> None:
    model = model_of(architecture)
    far = Paths.of(model.layout, ["L0.H1"], ["L2.H3.q"])
    near = Paths.of(model.layout, ["L1.MLP"], ["L2.H3.q"])  # nothing between
    tables = [path_patch(model, ITEMS, [far, near], mlps=mlps) for mlps in ("frozen", "recomputed")]
    difference = np.abs(tables[0].columns["logit_diff"] - tables[1].columns["logit_diff"]).max(1)
    assert difference[0] > 1e-4
    assert difference[1] < 1e-12


def test_all_paths_from_a_unit_are_its_replacement_everywhere() -> None:
    model = model_of("llama")
    units = [Unit("head", 0, 1), Unit("mlp", 1), Unit("head", 2, 3)]
    rows = [leaving(model.layout, [unit]) for unit in units] + [leaving(model.layout, units)]
    found = patch(model, ITEMS, rows, keep=False)
    total = ablate(model, ITEMS, [[unit] for unit in units] + [units], value="counterfactual")
    for name, values in found.columns.items():
        np.testing.assert_allclose(values, total.columns[name], rtol=0, atol=1e-11)


def test_a_receiver_behind_another_reads_what_that_one_now_writes() -> None:
    """The edges say so; with the first receiver's output pinned the number would be another one."""
    model = model_of("gpt2")
    both = Paths.of(model.layout, ["L0.H0"], ["L1.H1", "L2.H2.q"])
    edges = [Edge.parse(f"L0.H0->{slot}") for slot in ("L1.H1.q", "L1.KV1.k", "L1.KV1.v", "L2.H2.q")]
    assert both.edges == tuple(sorted(edges))
    apart = [Paths.of(model.layout, ["L0.H0"], [one]) for one in ("L1.H1", "L2.H2.q")]
    clean = ablate(model, ITEMS, [()])
    found = effects(path_patch(model, ITEMS, [both, *apart]), clean)
    assert np.abs(found[0] - found[1] - found[2]).max() > 1e-6


def test_many_paths_of_a_forward_do_not_see_each_other() -> None:
    model = model_of("llama")
    paths = groups_of(model.layout)
    for mlps in ("frozen", "recomputed"):
        together = path_patch(model, ITEMS, paths, mlps=mlps)
        for row, path in enumerate(paths):
            alone = path_patch(model, ITEMS, [path], mlps=mlps, batch_size=1)
            for name, values in together.columns.items():
                np.testing.assert_allclose(values[row], alone.columns[name][0], rtol=0, atol=1e-11)


def test_the_table_says_what_was_done_and_leaves_nothing_behind() -> None:
    model = model_of("llama")
    path = Paths.of(model.layout, ["L0.H1"], ["L2.H3.q"])
    before = count(model.module)
    table = path_patch(model, ITEMS, [path], mlps="recomputed")
    assert count(model.module) == before
    assert table.choices["mlps"] == "recomputed"
    assert table.sets == (carriers(model.layout, path, "recomputed"),)
    assert [str(edge) for edge in table.sets[0]] == [
        "L0.H1->L2.H3.q",
        "L0.MLP->L2.H3.q",
        "L1.MLP->L2.H3.q",
    ]
    assert table.examples == tuple(item.index for item in ITEMS)


def test_parallel_blocks_have_no_mlp_of_the_senders_block_between() -> None:
    model = model_of("gpt_neox")
    path = Paths.of(model.layout, ["L0.H1"], ["L2.H3.q"])
    assert "L0.MLP->L2.H3.q" not in map(str, carriers(model.layout, path, "recomputed"))


def test_senders_that_do_not_take_their_value_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    monkeypatch.setattr(module, "on_input", lambda *_: nullcontext())
    with pytest.raises(InterventionError, match="did not take its value"):
        path_patch(model, ITEMS, [Paths.of(model.layout, ["L0.H1"], ["L2.H3.q"])], mlps="recomputed")


@pytest.mark.parametrize("mlps", ["frozen", "recomputed"])
def test_quantised_models_are_refused(mlps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build_loaded("llama")
    monkeypatch.setattr(type(model), "quantised", property(lambda self: True))
    with pytest.raises(UnsupportedModel, match="quantised"):
        path_patch(model, ITEMS, [Paths.of(model.layout, ["L0.H1"], ["logits"])], mlps=mlps)


def test_wrong_calls_are_refused() -> None:
    model = model_of("llama")
    path = Paths.of(model.layout, ["L0.H1"], ["logits"])
    with pytest.raises(UsageError, match="unknown choice 'freeze'"):
        path_patch(model, ITEMS, [path], mlps="freeze")
    with pytest.raises(UsageError, match="no paths"):
        path_patch(model, ITEMS, [])
    uneven = [FakeItem(1, (3, 4, 5), (3, 4), (6,), (7,))]
    with pytest.raises(UsageError, match="counterfactual"):
        path_patch(model, uneven, [path])
