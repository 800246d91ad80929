"""patch(): edges and units, kept and knocked out, against plain forwards written edge by edge."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

from circuittest.circuit import Circuit
from circuittest.errors import CircuitError, TableError, UnitError, UnsupportedModel, UsageError
from circuittest.measure import patching
from circuittest.measure.ablation import ablate
from circuittest.measure.attribution import attribute
from circuittest.measure.edges import edges
from circuittest.measure.patching import patch
from circuittest.models.hooks import count, on_input, on_output
from circuittest.models.loaded import LoadedModel
from circuittest.tables import OutcomeTable
from circuittest.units import Edge, Unit
from tests.helpers import by_edges, tiny
from tests.helpers.items import FakeItem, random_items

VALUES = ("counterfactual", "zero", "mean")
CALIBRATION = random_items(3, (5, 7), seed=9)


@lru_cache
def model_of(architecture: str, dtype: torch.dtype = torch.float64) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=dtype)


def every(model: LoadedModel) -> tuple[Edge, ...]:
    return edges(model.layout)[0]


def swapped(items: Sequence[FakeItem]) -> list[FakeItem]:
    return [
        replace(item, prompt_ids=item.counterfactual_ids, counterfactual_ids=item.prompt_ids)
        for item in items
    ]


def drawn(model: LoadedModel, *shares: float, seed: int = 0) -> list[list[Edge]]:
    rng, all_of_them = random.Random(seed), every(model)
    return [rng.sample(all_of_them, int(share * len(all_of_them))) for share in shares]


def assert_rows(
    found: OutcomeTable, row: int, expected: OutcomeTable, other: int, tolerance: float = 1e-11
) -> None:
    assert set(found.columns) == set(expected.columns)
    for name, values in found.columns.items():
        np.testing.assert_allclose(
            values[row], expected.columns[name][other], rtol=0, atol=tolerance, err_msg=f"{name}, row {row}"
        )


def differ(table: OutcomeTable, row: int, other: int) -> bool:
    return bool(np.abs(table.columns["log_prob"][row] - table.columns["log_prob"][other]).max() > 1e-3)


@pytest.mark.parametrize("architecture", tiny.marked(tiny.EVERY))
def test_with_all_edges_a_model_is_clean_and_with_none_it_is_the_counterfactual_run(
    architecture: str,
) -> None:
    model, items = model_of(architecture), random_items(4)
    clean, other = ablate(model, items, [()]), ablate(model, swapped(items), [()])
    kept = patch(model, items, [every(model), ()], keep=True)
    assert_rows(kept, 0, clean, 0)
    assert_rows(kept, 1, other, 0)
    assert differ(kept, 0, 1)
    out = patch(model, items, [every(model), ()], keep=False)
    assert_rows(out, 0, other, 0)
    assert_rows(out, 1, clean, 0)


@pytest.mark.parametrize("architecture", tiny.marked(tiny.EVERY))
def test_a_unit_without_its_outgoing_edges_is_an_ablated_unit(architecture: str) -> None:
    model, items = model_of(architecture), random_items(4)
    units = [Unit("head", 0, 1), Unit("mlp", 0), Unit("head", 1, 3), Unit("mlp", 2), Unit("head", 2, 0)]
    outgoing = [[edge for edge in every(model) if edge.source == unit] for unit in units]
    outgoing.append(outgoing[0] + outgoing[2] + outgoing[3])
    sets = [[unit] for unit in units] + [[units[0], units[2], units[3]]]
    found, expected = patch(model, items, outgoing, keep=False, value="zero"), ablate(model, items, sets)
    for row in range(len(sets)):
        assert_rows(found, row, expected, row)
    assert differ(found, 0, 1)


@pytest.mark.parametrize("architecture", ["gpt2", "gpt_neox", "llama", "gemma3_text"])
def test_a_unit_whose_outgoing_edges_are_counterfactual_writes_its_counterfactual(architecture: str) -> None:
    model, items = model_of(architecture), random_items(2, (6,))
    ids = torch.tensor([item.prompt_ids for item in items])
    others = torch.tensor([item.counterfactual_ids for item in items])
    size = model.head_dim
    for unit in (Unit("head", 1, 2), Unit("mlp", 1)):
        block, seen = model.blocks[1], []
        module, side = (block.out, on_input) if unit.kind == "head" else (block.mlp_out, on_output)
        with side(module, lambda x, seen=seen: seen.append(x.clone())), torch.no_grad():
            model.module(others)

        def change(x: torch.Tensor, seen: list[torch.Tensor] = seen, unit: Unit = unit) -> torch.Tensor:
            new = x.clone()
            cut = slice(2 * size, 3 * size) if unit.kind == "head" else slice(None)
            new[..., cut] = seen[0][..., cut]
            return new

        with side(module, change), torch.no_grad():
            logs = model.module(ids).logits[:, -1].log_softmax(-1)
        outgoing = [edge for edge in every(model) if edge.source == unit]
        found = patch(model, items, [outgoing], keep=False)
        expected = [logs[row, list(item.answer_ids)].logsumexp(0).item() for row, item in enumerate(items)]
        np.testing.assert_allclose(found.columns["log_prob"][0], expected, atol=1e-12)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    ("architecture", "reference"),
    [("gpt2", by_edges.gpt2), ("llama", by_edges.llama), ("olmo2", by_edges.llama)],
)
def test_circuits_of_edges_are_sums_edge_by_edge(architecture: str, reference: Any, value: str) -> None:
    model, items = model_of(architecture), random_items(2, (4, 5))
    circuits = drawn(model, 0.5, 0.15, 0.9)
    tables = {
        keep: patch(model, items, circuits, keep=keep, value=value, calibration=CALIBRATION)
        for keep in (True, False)
    }
    run = torch.no_grad()(reference)
    calibrated = [run(model.module, list(item.prompt_ids)).writes for item in CALIBRATION]
    means = {unit: torch.cat([writes[unit] for writes in calibrated]).mean(0) for unit in calibrated[0]}
    for column, item in enumerate(items):
        plain = run(model.module, list(item.prompt_ids))
        replaced = {
            "counterfactual": run(model.module, list(item.counterfactual_ids)).writes,
            "zero": {unit: torch.zeros_like(write) for unit, write in plain.writes.items()},
            "mean": means,
        }[value]
        for keep, table in tables.items():
            for row, circuit in enumerate(map(set, circuits)):
                own = lambda edge, circuit=circuit, keep=keep: (edge in circuit) == keep
                logits = run(model.module, list(item.prompt_ids), replaced, own).logits
                found = {name: values[row, column] for name, values in table.columns.items()}
                logs = logits.log_softmax(-1)
                answers, foils = list(item.answer_ids), list(item.foil_ids)
                expected = {
                    "argmax": float(logits.argmax() in torch.tensor(answers)),
                    "candidates": float(logits[answers].max() > logits[foils].max()),
                    "log_prob": logs[answers].logsumexp(0).item(),
                    "logit_diff": (logits[answers].mean() - logits[foils].mean()).item(),
                    "prob_diff": (logs[answers].exp().sum() - logs[foils].exp().sum()).item(),
                }
                assert found == pytest.approx(expected, abs=1e-11, rel=0), (keep, row)


@pytest.mark.parametrize("architecture", tiny.marked(tiny.EVERY))
def test_a_small_single_edge_has_the_effect_that_attribution_says(architecture: str) -> None:
    """Counterfactual tokens whose embeddings differ by 1e-6: patching is then first order, which is EAP."""
    model = tiny.build_loaded(architecture, dtype=torch.float64)
    embedding = model.module.get_input_embeddings().weight
    generator = torch.Generator().manual_seed(3)
    embedding[20:37] = embedding[3:20] + 1e-6 * torch.randn(
        (17, embedding.shape[1]), generator=generator, dtype=torch.float64
    )
    model = tiny.wrap(model.module)
    prompts = [tiny.tokens(1, 6, seed=i, vocab=20)[0].tolist() for i in range(3)]
    items = [
        FakeItem(i, tuple(ids), tuple(t + 17 for t in ids), (4 + i,), (9,)) for i, ids in enumerate(prompts)
    ]
    scores = attribute(model, items, metric="logit_diff", level="edges")
    kinds: dict[Any, list[Edge]] = {}
    for edge in every(model):
        kinds.setdefault((edge.source.kind, edge.target.kind, edge.slot), []).append(edge)
    chosen = [random.Random(1).choice(found) for found in kinds.values()]
    table = patch(model, items, [(), *([edge] for edge in chosen)], keep=False)
    effects = table.columns["logit_diff"][1:] - table.columns["logit_diff"][0]
    expected = scores.columns(chosen).values.T[
        np.argsort(np.argsort([scores.members.index(e) for e in chosen]))
    ]
    scale = float(np.abs(scores.values).max())
    np.testing.assert_allclose(effects, expected, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gpt_neox", "gemma3_text"])
def test_circuits_batches_and_passes_do_not_see_each_other(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, items = model_of(architecture), random_items(3)
    circuits = [*drawn(model, 0.3, 0.7), (), [Edge.parse("L1.MLP->logits"), Edge.parse("embed->L1.H2.q")]]
    together = patch(model, items, circuits, keep=True)
    for row, circuit in enumerate(circuits[:3]):
        assert_rows(together, row, patch(model, items, [circuit], keep=True, batch_size=1), 0)
    others = patch(model, items, [set(every(model)) - set(circuit) for circuit in circuits], keep=False)
    for name, size in (("PASS_TOKENS", 1), ("PASS_BYTES", 1), ("PASS_TOKENS", 20)):
        with monkeypatch.context() as patched:
            patched.setattr(patching, name, size)
            again = patch(model, items, circuits, keep=True)
        for row in range(len(circuits)):
            assert_rows(together, row, again, row)
            assert_rows(together, row, others, row)


@pytest.mark.parametrize(
    "architecture", ["gpt2", "llama", "gpt_neox", "gemma3_text", *tiny.marked(["olmo2", "falcon", "bloom"])]
)
def test_passes_resume_where_the_first_edge_ends(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, items = model_of(architecture), random_items(2, (5,))
    texts = "embed->L2.H1.q L0.H1->L2.MLP L1.H0->logits L0.MLP->L1.MLP L1.MLP->L2.KV0.v embed->L0.KV0.k"
    circuits: list[list[Edge]] = [[Edge.parse(text)] for text in texts.split()]
    circuits = [[], *circuits, [*circuits[0], *circuits[2], Edge.parse("L1.H3->L2.MLP")]]
    together = patch(model, items, circuits, keep=False)
    starts: list[int] = []
    plain = patching.resume

    def counted(model: LoadedModel, layer: int, *more: Any, **options: Any) -> Any:
        starts.append(layer)
        return plain(model, layer, *more, **options)

    monkeypatch.setattr(patching, "resume", counted)
    monkeypatch.setattr(patching, "PASS_TOKENS", 10)
    alone = patch(model, items, circuits, keep=False)
    assert starts == [0, 1, 2, 2, 2, 2, 2, 2]
    for row in range(len(circuits)):
        assert_rows(together, row, alone, row)
    assert all(differ(alone, 0, row) for row in (1, 2, 4))


def test_rows_are_named_by_edges_in_the_order_given_and_equal_circuits_are_one() -> None:
    model, items = model_of("llama"), random_items(3)
    first, second = (Edge.parse(text) for text in ("embed->L1.KV1.v", "L0.H3->L2.MLP"))
    table = patch(model, items, [[second, first, second], Circuit.of([first, second]), [second]], keep=False)
    assert table.sets == ((first, second), (first, second), (second,))
    assert np.array_equal(table.columns["log_prob"][0], table.columns["log_prob"][1])
    assert differ(table, 0, 2)
    np.testing.assert_array_equal(table.row("log_prob", [second]), table.columns["log_prob"][2])
    assert table.examples == (10, 11, 12)
    assert table.choices["patched"] == "edges"
    assert table.choices["value"] == "counterfactual"
    assert table.choices["keep"] is False
    with pytest.raises(TableError, match=r"no outcomes for the intervention on embed->L1\.KV1\.v"):
        table.row("log_prob", [first])


def test_outcomes_without_foils_have_no_contrasts() -> None:
    model, items = model_of("gpt2"), random_items(2, foils=False)
    assert set(patch(model, items, [()], keep=True).columns) == {"argmax", "log_prob", "prob_diff"}


@dataclass(frozen=True)
class Forced(FakeItem):
    answer_rest: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


@pytest.mark.parametrize("ends", [(), (5, 6)])
@pytest.mark.parametrize("architecture", ["gpt2", "gemma3_text"])
def test_answers_of_several_tokens_are_patched_wherever_they_are_read(
    architecture: str, ends: tuple[int, ...]
) -> None:
    model = model_of(architecture)
    items = [
        Forced(i.index, i.prompt_ids, i.counterfactual_ids, (9,), (), (11, 12), ends) for i in random_items(4)
    ]
    clean, other = ablate(model, items, [()]), ablate(model, swapped(items), [()])
    table = patch(model, items, [every(model), ()], keep=True)
    assert_rows(table, 0, clean, 0)
    assert_rows(table, 1, other, 0)
    assert differ(table, 0, 1)


def test_the_model_is_left_as_it_was() -> None:
    model = model_of("olmo2")
    before = count(model.module)
    patch(model, random_items(2), drawn(model, 0.5), keep=True)
    with pytest.raises(UsageError):
        patch(
            model, [*random_items(1), replace(random_items(1)[0], counterfactual_ids=(3,))], [()], keep=True
        )
    assert count(model.module) == before
    assert not any("forward" in part.__dict__ for part in model.module.modules())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma3_text"])
def test_other_precisions_agree_within_their_rounding(architecture: str, dtype: torch.dtype) -> None:
    items = random_items(3)
    exact, rough = tiny.build_loaded(architecture, dtype=torch.float64), model_of(architecture, dtype)
    exact.module.load_state_dict(rough.module.state_dict())
    exact = tiny.wrap(exact.module)
    circuits = [every(exact), *drawn(exact, 0.5, 0.1)]
    expected = patch(exact, items, circuits, keep=True).columns["log_prob"]
    found = patch(rough, items, circuits, keep=True).columns["log_prob"]
    assert np.abs(found - expected).max() < (2e-4 if dtype == torch.float32 else 1.0)
    if dtype == torch.bfloat16:
        return
    np.testing.assert_allclose(found[0], ablate(rough, items, [()]).columns["log_prob"][0], atol=1e-4)


def test_keeping_units_ablates_the_others() -> None:
    model, items = model_of("llama"), random_items(3)
    kept = [Unit("head", 0, 1), Unit("kv", 1, 1), Unit("mlp", 2), Unit("embed")]
    parts = set(model.layout.expand(kept))
    rest = [unit for unit in model.layout.units() if unit not in parts]
    found = patch(model, items, [kept, [Unit("head", 0, 1)]], keep=True, level="units", value="zero")
    expected = ablate(model, items, [rest])
    assert_rows(found, 0, expected, 0)
    assert found.sets == (tuple(sorted(kept)), (Unit("head", 0, 1),))
    out = patch(model, items, [[Unit("mlp", 1)]], keep=False, level="units", value="zero")
    assert_rows(out, 0, ablate(model, items, [[Unit("mlp", 1)]]), 0)


def test_means_are_over_all_positions_of_all_calibration_examples() -> None:
    model, items = model_of("gpt2"), random_items(3)
    tables = [
        patch(
            model, items, drawn(model, 0.4), keep=True, value="mean", calibration=CALIBRATION, batch_size=size
        )
        for size in (1, 2, None)
    ]
    for other in tables[1:]:
        assert_rows(tables[0], 0, other, 0)


class TestRefusals:
    def test_bad_choices(self) -> None:
        model, items = model_of("gpt2"), random_items(2)
        with pytest.raises(UsageError, match="unknown replaced value 'resample'"):
            patch(model, items, [()], keep=True, value="resample")
        with pytest.raises(UsageError, match="unknown level 'edge'"):
            patch(model, items, [()], keep=True, level="edge")
        with pytest.raises(UsageError, match="no circuits"):
            patch(model, items, [], keep=True)
        with pytest.raises(UsageError, match="no examples"):
            patch(model, [], [()], keep=True)

    def test_bad_members(self) -> None:
        model, items = model_of("gpt_neox"), random_items(2)
        with pytest.raises(CircuitError, match="L0.H1 is no member of a circuit of edges"):
            patch(model, items, [[Unit("head", 0, 1)]], keep=True)
        with pytest.raises(CircuitError, match="embed->logits is no member of a circuit of units"):
            patch(model, items, [[Edge.parse("embed->logits")]], keep=True, level="units")
        for text in (
            "L1.H0->L0.H0.q",
            "L0.H0->L0.MLP",
            "L0.ATTN->L1.MLP",
            "L9.H0->logits",
            "L0.MLP->L1.KV7.k",
        ):
            with pytest.raises(UnitError, match="the model has no"):
                patch(model, items, [[Edge.parse(text)]], keep=False)

    def test_means_need_other_examples(self) -> None:
        model, items = model_of("gpt2"), random_items(2)
        with pytest.raises(UsageError, match="without calibration examples"):
            patch(model, items, [()], keep=True, value="mean")
        with pytest.raises(UsageError, match="1 of the 4 calibration prompts are among"):
            patch(model, items, [()], keep=True, value="mean", calibration=[items[1], *CALIBRATION])

    def test_counterfactuals_of_another_length(self) -> None:
        model, items = model_of("gpt2"), random_items(2)
        items[1] = replace(items[1], counterfactual_ids=items[1].counterfactual_ids[1:])
        with pytest.raises(UsageError, match="example 11 has 9 prompt tokens and 8 counterfactual tokens"):
            patch(model, items, [()], keep=True)

    def test_not_a_number(self) -> None:
        model = tiny.build_loaded("gpt2", dtype=torch.float32)
        model.module.transformer.h[1].mlp.c_fc.bias.fill_(3e38)  # finite, but the product overflows
        model.module.transformer.h[1].mlp.c_fc.weight.fill_(3e38)
        with pytest.raises((TableError, Exception), match="not finite|not patched"):
            patch(tiny.wrap(model.module), random_items(2), drawn(model, 0.5), keep=True)

    def test_quantised_models(self) -> None:
        model = replace(model_of("gpt2"), quantised=True)
        with pytest.raises(UnsupportedModel, match="is quantised"):
            patch(model, random_items(2), [()], keep=True)
