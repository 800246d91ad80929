"""Paths: which edges two groups stand for, and what is refused."""

from __future__ import annotations

import pytest

from circuittest.errors import UnitError, UsageError
from circuittest.paths import Paths, entering, leaving, name_of, readers, writers
from circuittest.units import Layout, Unit

MHA = Layout(n_layers=3, n_heads=4, n_kv_heads=4)
GQA = Layout(n_layers=3, n_heads=4, n_kv_heads=2, n_neurons=8)
PARALLEL = Layout(n_layers=2, n_heads=2, n_kv_heads=2, parallel=True)


def read(layout: Layout, *receivers: str) -> list[str]:
    return [name_of(reader) for reader in readers(layout, receivers)]


@pytest.mark.parametrize(
    ("layout", "receiver", "slots"),
    [
        (MHA, "L1.H2.q", ["L1.H2.q"]),
        (MHA, "L1.H2.k", ["L1.KV2.k"]),
        (MHA, "L1.H2", ["L1.H2.q", "L1.KV2.k", "L1.KV2.v"]),
        (GQA, "L1.KV1", ["L1.H2.q", "L1.H3.q", "L1.KV1.k", "L1.KV1.v"]),
        (GQA, "L1.KV1.q", ["L1.H2.q", "L1.H3.q"]),
        (GQA, "L1.KV1.v", ["L1.KV1.v"]),
        (GQA, "L1.ATTN.k", ["L1.KV0.k", "L1.KV1.k"]),
        (GQA, "L1.MLP", ["L1.MLP"]),
        (GQA, "logits", ["logits"]),
    ],
)
def test_receivers(layout: Layout, receiver: str, slots: list[str]) -> None:
    assert read(layout, receiver) == slots


def test_receivers_are_distinct_and_in_order() -> None:
    assert read(MHA, "logits", "L1.H2.q", "L1.H2", "L0.MLP") == [
        "L0.MLP",
        "L1.H2.q",
        "L1.KV2.k",
        "L1.KV2.v",
        "logits",
    ]


def test_heads_that_share_keys_have_them_together_only() -> None:
    assert read(GQA, "L1.H2.k", "L1.H3.k") == ["L1.KV1.k"]
    assert read(GQA, "L1.H2", "L1.H3") == ["L1.H2.q", "L1.H3.q", "L1.KV1.k", "L1.KV1.v"]
    with pytest.raises(
        UnitError, match=r"L1.H2 has no keys of its own: it shares those of L1.KV1 with L1.H3. Name L1.KV1.k"
    ):
        read(GQA, "L1.H2.k")
    with pytest.raises(UnitError, match=r"L1.H3 has no values of its own"):
        read(GQA, "L1.H2.k", "L1.H3")


def test_senders_are_what_writes() -> None:
    assert [str(u) for u in writers(GQA, ["L1.KV1", "embed", "L0.MLP", "L1.H2"])] == [
        "embed",
        "L0.MLP",
        "L1.H2",
        "L1.H3",
    ]


def test_paths_are_edges() -> None:
    paths = Paths.of(GQA, ["L0.H1", "L1.MLP"], ["L1.KV0.v", "L2.H3.q", "logits"])
    assert [str(edge) for edge in paths.edges] == [
        "L0.H1->L1.KV0.v",
        "L0.H1->L2.H3.q",
        "L0.H1->logits",
        "L1.MLP->L2.H3.q",
        "L1.MLP->logits",
    ]
    assert paths.missing == ("L1.MLP to L1.KV0.v",)
    assert Paths.of(GQA, [Unit("head", 0, 1)], [(Unit("kv", 1, 0), "v")]).edges == paths.edges[:1]


def test_an_mlp_reads_the_heads_of_its_block_unless_they_run_in_parallel() -> None:
    assert len(Paths.of(GQA, ["L1.H0"], ["L1.MLP"]).edges) == 1
    with pytest.raises(UnitError, match="no path runs from L1.H0 to L1.MLP"):
        Paths.of(PARALLEL, ["L1.H0"], ["L1.MLP"])


def test_leaving_and_entering() -> None:
    assert len(leaving(PARALLEL, [Unit("head", 0, 1)])) == 2 + 2 + 2 + 1 + 1  # q, k, v, MLP of L1, logits
    into = entering(GQA, [(Unit("head", 1, 2), "q")], ["head"])
    assert [str(edge) for edge in into] == [f"L0.H{head}->L1.H2.q" for head in range(4)]
    assert len(entering(GQA, [(Unit("logits"), None)], ["embed", "head", "mlp"])) == 1 + 3 * 5


@pytest.mark.parametrize(
    ("senders", "receivers", "message"),
    [
        ([], ["logits"], "no senders were given"),
        (["L0.H1"], [], "no receivers were given"),
        (["L1.H1"], ["L1.H1.q"], "L1.H1 is in both groups"),
        (["L1.H1"], ["L1.KV0.k"], "L1.H1 is in both groups"),
        (["L0.H1", "L1.MLP"], ["L2.H0.q", "L1.MLP"], "L1.MLP is in both groups"),
    ],
)
def test_groups_that_make_no_sense(senders: list[str], receivers: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Paths.of(GQA, senders, receivers)


@pytest.mark.parametrize(
    ("senders", "receivers", "message"),
    [
        (["L2.H1"], ["L1.H1.q"], "no path runs from L2.H1 to L1.H1.q: every receiver reads before"),
        (["L1.H1"], ["L1.H2.q"], "no path runs"),
        (["L0.H1"], ["L1.H1.x"], "not a receiver: 'L1.H1.x': a slot is q, k or v"),
        (["L0.H1"], ["H1.q"], "not a unit id: 'H1'"),
        (["L0.H1"], ["L1.MLP.q"], "L1.MLP has no slot 'q'"),
        (["L0.H1"], ["logits.q"], "the logits have no slot 'q'"),
        (["L0.H1"], ["L1.N3"], "L1.N3 cannot be a receiver"),
        (["L0.H1"], ["embed"], "embed cannot be a receiver: it reads nothing"),
        (["L0.H1"], [(Unit("head", 1, 0), "x")], "L1.H0 has no slot 'x'"),
        (["L0.H1"], ["L3.H0.q"], "the model has no L3.H0"),
        (["L0.H9"], ["logits"], "the model has no L0.H9"),
        (["logits"], ["logits"], "no path starts at logits"),
        (["L0.N3"], ["logits"], "no path starts at L0.N3.*the MLP that it is part of"),
        ([3], ["logits"], "not a unit id"),
        (["L0.H1"], [3], "not a receiver"),
    ],
)
def test_units_and_slots_that_are_not_there(senders: list[str], receivers: list[str], message: str) -> None:
    with pytest.raises(UnitError, match=message):
        Paths.of(GQA, senders, receivers)
