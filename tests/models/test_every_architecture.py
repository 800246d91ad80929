"""Every architecture once: preflight, sizes, ablation as edited weights, node scores as sums of edges, broken adapters.

The exhaustive tests of measurement run on the architectures of `tiny.ARCHITECTURES`; on the others they are slow.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuittest.cli import main
from circuittest.errors import InterventionError, UnsupportedModel, UsageError
from circuittest.measure.ablation import ablate
from circuittest.measure.attribution import attribute
from circuittest.models import adapters as adapters_module
from circuittest.models.adapters import REFUSED, Adapter, adapter_for, adapters, register_adapter
from circuittest.models.loaded import LoadedModel, weight_in_out
from circuittest.models.loading import from_module
from circuittest.models.preflight import preflight, require
from circuittest.models.wiring import slot_features
from circuittest.units import Unit
from tests.helpers import tiny
from tests.helpers.edited import without
from tests.helpers.items import random_items

#: Per architecture: KV heads of four query heads, size of a head, parallel blocks, layers with experts.
FACTS: dict[str, tuple[int, int, bool, tuple[int, ...]]] = {
    "llama3": (2, 6, False, ()),
    "qwen2_tied": (2, 4, False, ()),
    "mistral": (2, 6, False, ()),
    "qwen3": (2, 6, False, ()),
    "gemma": (2, 6, False, ()),
    "gemma2": (2, 6, False, ()),
    "smollm3": (2, 4, False, ()),
    "olmo": (2, 4, False, ()),
    "olmo_clipped": (2, 4, False, ()),
    "olmo2": (2, 4, False, ()),
    "olmo3": (2, 4, False, ()),
    "olmoe": (2, 4, False, (0, 1, 2)),
    "mixtral": (2, 6, False, (0, 1, 2)),
    "qwen3_moe": (2, 6, False, (0, 2)),
    "gpt_oss": (2, 6, False, (0, 1, 2)),
    "phi": (2, 4, True, ()),
    "phi_qk_norm": (2, 4, True, ()),
    "phi3": (2, 4, False, ()),
    "gptj": (4, 4, True, ()),
    "falcon": (1, 4, True, ()),
    "falcon_two_norms": (2, 4, True, ()),
    "falcon_one_norm": (2, 4, True, ()),
    "falcon_alibi": (4, 4, False, ()),
    "bloom": (4, 4, False, ()),
}
SETS = tuple(
    tuple(Unit.parse(text) for text in texts.split()) for texts in ("L0.H1 L2.MLP", "L1.KV0", "L0.MLP L2.H3")
)


ITEMS = random_items(2, (7,))


@lru_cache
def model_of(architecture: str, dtype: torch.dtype = torch.float64) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=dtype)


def test_every_relative_is_described() -> None:
    assert tuple(FACTS) == tuple(tiny.RELATIVES)


@pytest.mark.parametrize("architecture", FACTS)
def test_sizes_and_kind(architecture: str) -> None:
    model = model_of(architecture)
    found = (model.layout.n_kv_heads, model.head_dim, model.layout.parallel, model.mixtures)
    assert found == FACTS[architecture]
    assert (model.layout.n_layers, model.layout.n_heads, model.width) == (3, 4, 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("architecture", FACTS)
def test_the_preflight_passes(architecture: str, dtype: torch.dtype) -> None:
    checks = preflight(model_of(architecture, dtype))
    require(checks)
    assert ("mixture" in {check.name for check in checks}) == bool(FACTS[architecture][3])


@pytest.mark.parametrize("architecture", FACTS)
def test_ablation_is_editing_weights(architecture: str) -> None:
    model = model_of(architecture)
    table = ablate(model, ITEMS, [(), *SETS])
    clean = table.columns["log_prob"][0]
    for row, units in enumerate(SETS, start=1):
        expected = ablate(without(model, units), ITEMS, [()])
        for name, values in table.columns.items():
            np.testing.assert_allclose(
                values[row], expected.columns[name][0], rtol=0, atol=1e-10, err_msg=name
            )
        assert np.abs(table.columns["log_prob"][row] - clean).max() > 1e-3, units


@pytest.mark.parametrize("architecture", FACTS)
def test_a_units_node_score_is_the_sum_of_its_edges(architecture: str) -> None:
    model = model_of(architecture)
    nodes, edges = (
        attribute(model, ITEMS, metric="log_prob", unit_score=rule, kinds=("embed", "head", "mlp")).values
        for rule in ("node", "edge-sum")
    )
    np.testing.assert_allclose(edges, nodes, rtol=1e-5, atol=1e-6 * np.abs(nodes).max())
    assert (np.abs(nodes).max(0) > 0).all()


@pytest.mark.parametrize("architecture", FACTS)
def test_without_a_value_its_kv_group_reads_nothing(architecture: str) -> None:
    """Zero one KV head's value weights and bias: the same as ablating its group of query heads."""
    model = model_of(architecture)
    lay, kv = model.layout, model.layout.n_kv_heads - 1
    features = slot_features(model.adapter, "v", lay.n_heads, lay.n_kv_heads, model.head_dim)[kv]
    edited = tiny.wrap(copy.deepcopy(model.module))
    with torch.no_grad():
        part = edited.blocks[1].slot("v")
        weight_in_out(part)[:, features] = 0
        if part.bias is not None:
            part.bias[features] = 0
    expected = ablate(model, ITEMS, [(Unit("kv", 1, kv),)])
    found = ablate(tiny.wrap(edited.module), ITEMS, [()])
    np.testing.assert_allclose(found.columns["log_prob"], expected.columns["log_prob"], rtol=0, atol=1e-10)


def wrong_parallel(model: LoadedModel) -> dict[str, Any]:
    return {"parallel": not model.layout.parallel}


def wrong_norms(model: LoadedModel) -> dict[str, Any]:
    a = model.adapter
    if a.attn_norm is None:
        return {"attn_post_norm": a.mlp_post_norm, "mlp_post_norm": a.attn_post_norm}
    if a.attn_norm == a.mlp_norm:
        return {"attn_norm": None}
    return {"attn_norm": a.mlp_norm, "mlp_norm": a.attn_norm}


def wrong_slots(model: LoadedModel) -> dict[str, Any]:
    a = model.adapter
    if a.fused is None:
        return {"k": a.v, "v": a.k}
    return {"fused": "grouped" if a.fused == "stacked" else "stacked"}


def no_post_norm(model: LoadedModel) -> dict[str, Any]:
    return {"mlp_post_norm": None}


def wrong_mlp(model: LoadedModel) -> dict[str, Any]:
    """The MLP's norm for its output."""
    return {"mlp_out": model.adapter.mlp_norm or model.adapter.mlp_post_norm}


#: Ways to break an adapter, the checks that may notice, and the architectures that it changes nothing for.
WRONG: dict[Callable[[LoadedModel], dict[str, Any]], tuple[tuple[str, ...], set[str]]] = {
    wrong_parallel: (("inputs",), set()),
    wrong_norms: (("inputs", "writes"), set()),
    wrong_slots: (("q, k and v", "inputs"), {"falcon"}),  # with one KV head both layouts are the same
    no_post_norm: (("writes", "inputs"), set(FACTS) - {"gemma2", "olmo2", "olmo3"}),
    wrong_mlp: (("inputs", "writes"), set()),
}


@pytest.mark.parametrize(
    ("architecture", "break_it"),
    [(name, how) for name in FACTS for how, (_, not_for) in WRONG.items() if name not in not_for],
)
def test_a_broken_adapter_is_refused(architecture: str, break_it: Callable[..., dict[str, Any]]) -> None:
    model = model_of(architecture, torch.float32)
    adapter: Adapter = replace(model.adapter, **break_it(model))
    checks = preflight(from_module(model.module, adapter=adapter))
    assert not checks[-1].passed
    assert checks[-1].name in WRONG[break_it][0], checks[-1]
    with pytest.raises(InterventionError, match="layer L0.*Register an adapter"):
        require(checks)


@pytest.mark.parametrize("architecture", ["falcon", "falcon_two_norms", "olmo_clipped"])
def test_writing_in_place_must_be_said(architecture: str) -> None:
    """Kept activations would silently be those after the model wrote into them."""
    model = model_of(architecture, torch.float32)
    quiet = from_module(model.module, adapter=replace(model.adapter, in_place=False))
    check = preflight(quiet)[-1]
    assert (check.name, check.passed) == ("inputs", False)
    assert "is changed in place later" in check.detail
    with pytest.raises(InterventionError, match="changed in place afterwards"):
        attribute(quiet, ITEMS, metric="log_prob")


@pytest.mark.parametrize("architecture", ["olmo2", "olmoe"])
def test_norms_over_all_heads_must_be_named(architecture: str) -> None:
    model = model_of(architecture, torch.float32)
    check = preflight(from_module(model.module, adapter=replace(model.adapter, q_norm=None, k_norm=None)))[-1]
    assert (check.name, check.passed) == ("q, k and v", False)
    assert "changing L0.H0.q at position 4 changes head" in check.detail


def test_a_residual_inside_the_modules_must_be_said() -> None:
    """BLOOM's modules return the residual as well; TransformerLens once took that for their write."""
    model = model_of("bloom", torch.float32)
    for changes in ({"residual_inside": False}, {"residual_inside": False, "mlp_out": None}):
        check = preflight(from_module(model.module, adapter=replace(model.adapter, **changes)))[-1]
        assert (check.name, check.passed) == ("inputs", False)
    with pytest.raises(UsageError, match="mlp_out must name"):
        replace(model.adapter, mlp_out=None)
    with pytest.raises(UsageError, match="separate projections only"):
        replace(model.adapter, q_norm="self_attention.dense")


@pytest.mark.parametrize(
    ("architecture", "config", "detail"),
    [
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "L0"),
        ("bloom", {"pretraining_tp": 2, "slow_but_exact": True}, "'out' took no part"),
    ],
)
def test_what_no_adapter_describes_is_refused(architecture: str, config: dict[str, Any], detail: str) -> None:
    model = tiny.build_loaded(architecture, **config)
    check = preflight(model)[-1]
    assert not check.passed
    assert detail in check.detail


@pytest.mark.parametrize("model_type", REFUSED)
def test_refused_types_are_refused_with_the_reason(model_type: str) -> None:
    assert model_type not in adapters()
    with pytest.raises(UnsupportedModel, match="no adapter for model type") as refusal:
        adapter_for(model_type)
    assert REFUSED[model_type] in str(refusal.value)


def test_a_type_of_ones_own_takes_a_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    module = tiny.build("llama")
    module.config.model_type = "acme"
    with pytest.raises(UnsupportedModel, match=r"no adapter for model type 'acme'.*register_adapter"):
        from_module(module)
    monkeypatch.setitem(adapters_module._REGISTRY, "acme", adapter_for("llama"))  # taken back afterwards
    own = Adapter(
        model_types=("acme",),
        layers="model.layers",
        final_norm="model.norm",
        attention="self_attn",
        out="self_attn.o_proj",
        mlp="mlp",
        attn_norm="input_layernorm",
        mlp_norm="post_attention_layernorm",
        q="self_attn.q_proj",
        k="self_attn.k_proj",
        v="self_attn.v_proj",
    )
    register_adapter(own, replace=True)
    model = from_module(module)
    assert model.adapter is own
    require(preflight(model))


@pytest.mark.parametrize(
    "architecture", tiny.marked(["gpt2", "falcon_two_norms", "bloom", "gpt_oss", "qwen3_moe"])
)
def test_doctor_prints_what_was_checked(
    architecture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.save(tiny.build(architecture), tmp_path)
    assert main(["doctor", "--model", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    model_type = json.loads((tmp_path / "config.json").read_text())["model_type"]
    assert f"({model_type}): it has layers L0 to L2" in out
    assert "all checks passed" in out
    assert ("mixture of 4 experts, 2 per token" in out) == bool(FACTS.get(architecture, (0, 0, 0, ()))[3])
