"""Labs with a store: a second run reads no weights and runs no model, and its numbers are the same bytes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from circuittest import Lab, zoo
from circuittest.errors import InterventionError, LoadError, UsageError
from circuittest.lab import kept
from circuittest.models import lazy, loading, untrained
from circuittest.models.preflight import Check
from circuittest.report.records import record
from circuittest.store import Store
from circuittest.store.watch import watching

SIZES = {"discover": 12, "evaluate": 12}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def settled(monkeypatch):
    """As if nobody worked on the sources while the tests run."""
    monkeypatch.setattr(kept, "unchanged", lambda: True)


@pytest.fixture
def no_weights(monkeypatch):
    """From now on no weights can be read and no model built; forwards are thereby out of the question, too."""

    def stop():
        def refused(*args, **kwargs):
            raise AssertionError("a model was read")

        monkeypatch.setattr(loading, "_read", refused)
        monkeypatch.setattr(untrained, "_twin", refused)
        monkeypatch.setattr(torch.nn.Module, "__call__", refused)

    return stop


@pytest.fixture(scope="module")
def own_copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "mine"
    shutil.copytree(zoo.path("gqa"), folder)
    return folder


def measured(lab, *, whole=True):
    """What costs forwards of every sort, as records."""
    circuit = lab.shared(top="20%", at=50)
    found = [lab.reuse(circuit), lab.necessity(circuit, controls=5)]
    if not whole:
        return json.dumps([record(one, id="", outcome="passed") for one in found], sort_keys=True)
    found += [
        lab.necessity(circuit, controls=5, ablation="mean"),
        lab.sufficiency(circuit),
        lab.untrained().coverage(circuit),
        lab.on("sva").necessity(circuit, controls=5),
    ]
    edges = lab.shared(top="1%", at=50, universe="all", level="edges", dtype="bfloat16")
    mean = lab.scores("discover", method="eap-ig", steps=2, baseline="mean").values.tolist()
    records = [record(one, id=str(number), outcome="passed") for number, one in enumerate(found)]
    return json.dumps([records, list(map(str, edges.edges)), edges.origin, mean], sort_keys=True)


def test_a_second_run_reads_no_weights_and_gives_the_same_bytes(root, no_weights):
    first = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    plain = measured(first, whole=False)
    untrained_twin = first.untrained().fingerprint
    assert first.store.computed > 4
    no_weights()
    second = Lab("zoo:gqa", "ioi", **SIZES, store=Store(root))
    with watching() as watch:
        assert measured(second, whole=False) == plain
    assert watch.cached
    assert second.untrained().fingerprint == untrained_twin
    assert second.store.computed == 0
    assert not second.model.in_memory
    assert not second.untrained().model.in_memory
    assert "not loaded" in repr(second.model)


@pytest.mark.slow
def test_with_and_without_a_store_the_bytes_are_the_same(root):
    plain = measured(Lab("zoo:gqa", "ioi", **SIZES))
    assert measured(Lab("zoo:gqa", "ioi", **SIZES, store=root)) == plain
    again = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    assert measured(again) == plain
    assert not again.model.in_memory


def test_what_is_new_reads_the_model_and_what_is_old_does_not(root):
    Lab("zoo:gqa", "ioi", **SIZES, store=root).scores()
    lab = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    with watching() as watch:
        lab.scores()
    assert (watch.found, watch.measured, lab.model.in_memory) == (1, 0, False)
    with watching() as watch:
        lab.scores("evaluate")
    assert (watch.found, watch.measured, lab.model.in_memory) == (0, 1, True)


CHANGES = {
    "seed": {"seed": 1},
    "discover": {"discover": 13},
    "metric": {"metric": "log_prob"},
    "dtype": {"dtype": "bfloat16"},
    "model": {"model": "zoo:gqa-mha"},
    "task": {"task": "sva"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_input_is_another_table(root, change):
    how = {"model": "zoo:gqa", "task": "ioi", **SIZES, "store": root}
    Lab(**how).scores()
    with watching() as watch:
        Lab(**how).scores()
    assert watch.cached
    with watching() as watch:
        Lab(**{**how, **CHANGES[change]}).scores()
    assert watch.measured == 1


ASKED = [
    lambda lab: lab.scores(),
    lambda lab: lab.scores("evaluate"),
    lambda lab: lab.scores(score="edge-sum"),
    lambda lab: lab.scores(method="eap-ig", steps=2),
    lambda lab: lab.scores(method="eap-ig", steps=3),
    lambda lab: lab.scores(baseline="zero"),
    lambda lab: lab.scores(level="edges"),
    lambda lab: lab.scores(dtype="bfloat16"),
    lambda lab: lab.outcomes([()]),
    lambda lab: lab.outcomes([(), lab.layout.universe("heads")[:1]]),
    lambda lab: lab.outcomes([lab.layout.universe("heads")[:1], ()]),
    lambda lab: lab.outcomes([()], split="discover"),
    lambda lab: lab.outcomes([lab.layout.universe("heads")[:1]], value="mean"),
    lambda lab: lab.outcomes([lab.layout.universe("heads")[:1]], positions="answer"),
    lambda lab: lab.patched([lab.layout.universe("heads")[:1]], keep=True, level="units"),
    lambda lab: lab.patched([lab.layout.universe("heads")[:1]], keep=False, level="units"),
    lambda lab: lab.patched([lab.layout.universe("heads")[:1]], keep=False, level="units", value="zero"),
    lambda lab: lab.top_tokens([()], [0, 1]),
    lambda lab: lab.top_tokens([()], [0, 2]),
]


def test_another_question_is_another_table_and_the_same_is_found(root):
    lab = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    for ask in ASKED:
        with watching() as watch:
            ask(lab)
        assert (watch.found, watch.measured) == (0, 1)
    again = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    for ask in ASKED:
        with watching() as watch:
            ask(again)
        assert (watch.found, watch.measured) == (1, 0)


def test_threads_are_part_of_the_key(root, monkeypatch):
    Lab("zoo:gqa", "ioi", **SIZES, store=root).scores()
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads + 1)
    with watching() as watch:
        Lab("zoo:gqa", "ioi", **SIZES, store=root).scores()
    assert watch.measured == 1


def test_tables_from_the_store_may_be_written_to(root):
    Lab("zoo:gqa", "ioi", **SIZES, store=root).outcomes([()])
    table = Lab("zoo:gqa", "ioi", **SIZES, store=root).outcomes([()])
    assert all(values.flags.writeable for values in table.columns.values())


# The model's files


def test_a_copy_elsewhere_shares_the_tables(root, own_copy, no_weights):
    original = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    original.scores()
    no_weights()
    copy = Lab(own_copy, "ioi", **SIZES, store=root)
    with watching() as watch:
        copy.scores()
    assert watch.cached
    assert copy.fingerprint == original.fingerprint
    assert copy.model.name == str(own_copy)  # what it is called does not come from the store


def test_one_changed_weight_is_another_model(root, own_copy, tmp_path):
    Lab(own_copy, "ioi", **SIZES, store=root).scores()
    changed = tmp_path / "changed"
    shutil.copytree(own_copy, changed)
    change_a_weight(changed)
    other = Lab(changed, "ioi", **SIZES, store=root)
    with watching() as watch:
        other.scores()
    assert watch.measured == 1
    assert other.fingerprint != Lab(own_copy, "ioi", **SIZES, store=root).fingerprint


def test_weights_that_change_while_they_are_in_use_are_refused(root, own_copy, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(own_copy, folder)
    Lab(folder, "ioi", **SIZES, store=root).scores()
    lab = Lab(folder, "ioi", **SIZES, store=root)
    lab.scores()
    change_a_weight(folder)
    with pytest.raises(LoadError, match="changed while they were in use"):
        lab.scores("evaluate")


def change_a_weight(folder):
    file = folder / "model.safetensors"
    weights = load_file(file)
    name = sorted(weights)[0]
    weights[name] = weights[name].clone()
    weights[name].view(-1)[0] += 1
    save_file(weights, file, metadata={"format": "pt"})


def test_large_files_are_hashed_once(root, own_copy, monkeypatch):
    hashed = []
    real = lazy._hashed
    monkeypatch.setattr(lazy, "_hashed", lambda file: (hashed.append(file.name), real(file))[1])
    monkeypatch.setattr(lazy, "_LARGE", 1 << 20)
    monkeypatch.setattr(lazy, "_SETTLED", -1e12)  # as if everything had been written long ago
    store = Store(root)
    first, second = lazy.files_of(own_copy, store), lazy.files_of(own_copy, store)
    assert first == second
    assert hashed.count("model.safetensors") == 1
    assert hashed.count("config.json") == 2
    monkeypatch.setattr(
        lazy, "_SETTLED", 1e12
    )  # just written: its times may not tell it from what comes next
    lazy.files_of(own_copy, store)
    assert hashed.count("model.safetensors") == 2


def test_a_directory_that_is_none_is_left_to_the_loader(root, tmp_path):
    assert lazy.files_of(tmp_path, Store(root)) is None
    (tmp_path / "config.json").write_text("{")
    assert lazy.files_of(tmp_path, Store(root)) is None
    with pytest.raises(LoadError):
        Lab(tmp_path, "ioi", store=root).scores()
    with pytest.raises(LoadError, match="no model"):
        Lab("zoo:nonsense", "ioi", store=root).scores()


def test_modules_in_memory_are_not_kept(root):
    loaded = loading.load_model("zoo:gqa")
    lab = Lab(loaded.module, "ioi", tokenizer=loaded.tokenizer, **SIZES, store=root)
    with watching() as watch:
        lab.scores()
    assert watch.measured == 1
    assert lab.store.info().entries == 0


def test_a_loaded_model_is_kept(root):
    Lab(loading.load_model("zoo:gqa"), "ioi", **SIZES, store=root).scores()
    with watching() as watch:
        Lab(loading.load_model("zoo:gqa", store=Store(root)), "ioi", **SIZES, store=root).scores()
    assert watch.cached


def test_a_model_into_which_somebody_put_hooks_is_neither_looked_up_nor_kept(root):
    plain = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    right = plain.outcomes([()]).measure("log_prob")
    steered = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    layer = steered.model.blocks[2].block
    layer.register_forward_hook(lambda module, args, output: output * 1.5)
    with watching() as watch:
        wrong = steered.outcomes([()]).measure("log_prob")
        steered.outcomes([()], split="discover")
    assert (watch.found, watch.measured) == (0, 2)
    assert abs(wrong - right).max() > 0.01
    with watching() as watch:
        again = Lab("zoo:gqa", "ioi", **SIZES, store=root)
        assert (again.outcomes([()]).measure("log_prob") == right).all()
        again.outcomes([()], split="discover")
    assert (watch.found, watch.measured) == (1, 1)


def test_a_model_whose_weights_somebody_changed_is_refused_though_there_is_an_entry(root):
    Lab("zoo:gqa", "ioi", **SIZES, store=root).outcomes([()])
    lab = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    with torch.no_grad():
        next(lab.model.module.parameters()).add_(1)
    with pytest.raises(UsageError, match="changed since the model was wrapped"):
        lab.outcomes([()])


@pytest.mark.parametrize(
    "change",
    [
        lambda weight: weight.data[:, :8].zero_(),  # a head's writes
        lambda weight: weight.data[8:16].mul_(2),
        lambda weight: setattr(weight, "data", torch.zeros_like(weight)),
    ],
    ids=["columns", "rows", "replaced"],
)
def test_weights_that_were_changed_behind_the_back_of_autograd_are_refused(root, change):
    Lab("zoo:gqa", "ioi", **SIZES, store=root).outcomes([()])
    lab = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    change(lab.model.module.model.layers[1].self_attn.o_proj.weight)
    with pytest.raises(UsageError, match="changed since the model was wrapped"):
        lab.outcomes([()])


def test_a_lab_gives_no_table_that_it_remembers_of_earlier_weights():
    loaded = loading.load_model("zoo:gqa")
    lab = Lab(loaded.module, "ioi", tokenizer=loaded.tokenizer, **SIZES)
    lab.outcomes([()])
    lab.outcomes([()])
    with torch.no_grad():
        next(loaded.module.parameters()).add_(1)
    with pytest.raises(UsageError, match="Wrap the module again"):
        lab.outcomes([()])


def test_a_part_that_somebody_made_compute_something_else_is_neither_looked_up_nor_kept(root):
    right = Lab("zoo:gqa", "ioi", **SIZES, store=root).outcomes([()]).measure("log_prob")
    patched = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    norm = patched.model.module.model.norm
    own = norm.forward
    norm.forward = lambda states: own(states) * 1.5
    with watching() as watch:
        wrong = patched.outcomes([()]).measure("log_prob")
    assert (watch.found, watch.measured) == (0, 1)
    assert abs(wrong - right).max() > 0.01
    with watching() as watch:
        again = Lab("zoo:gqa", "ioi", **SIZES, store=root).outcomes([()]).measure("log_prob")
    assert watch.cached
    assert (again == right).all()


def test_another_implementation_of_attention_is_another_model(root):
    Lab("zoo:gqa", "ioi", **SIZES, store=root).outcomes([()])
    lab = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    lab.model.module.set_attn_implementation("eager")
    with watching() as watch:
        lab.outcomes([()])
    assert (watch.found, watch.measured) == (0, 1)


def test_another_adapter_is_another_model():
    loaded = loading.load_model("zoo:gqa")
    other = replace(loaded, adapter=replace(loaded.adapter, q_norm="self_attn.q_proj"))
    assert lazy.identified(other).identity != lazy.identified(loaded).identity == loaded.identity


# What must not be remembered


def test_a_preflight_that_failed_is_not_remembered(root, monkeypatch):
    from circuittest.models import preflight

    real = preflight.preflight
    monkeypatch.setattr(preflight, "preflight", lambda model: (Check("heads", False, "L0", "mend it"),))
    for _ in range(2):
        with pytest.raises(InterventionError, match="preflight: heads failed"):
            Lab("zoo:gqa", "ioi", **SIZES, store=root).scores()
    monkeypatch.setattr(preflight, "preflight", real)
    Lab("zoo:gqa", "ioi", **SIZES, store=root).scores()
    monkeypatch.setattr(preflight, "preflight", lambda model: pytest.fail("checked again"))
    Lab("zoo:gqa", "ioi", **SIZES, store=root).scores("evaluate")


def test_tables_of_halved_batches_are_not_kept(root, monkeypatch):
    from circuittest.measure import memory

    lab = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    real = lab._attribute

    def short_of_memory(*args, **kwargs):
        memory.Fallbacks.count += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(lab, "_attribute", short_of_memory)
    lab.scores()
    with watching() as watch:
        Lab("zoo:gqa", "ioi", **SIZES, store=root).scores()
    assert watch.measured == 1


def test_what_was_measured_while_the_code_changed_is_not_kept(root, monkeypatch):
    monkeypatch.setattr(kept, "unchanged", lambda: False)
    lab = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    lab.scores()
    monkeypatch.setattr(kept, "unchanged", lambda: True)
    with watching() as watch:
        Lab("zoo:gqa", "ioi", **SIZES, store=root).scores()
    assert watch.measured == 1


def test_a_store_that_forgot_what_the_model_is_reads_it_again(root):
    lab = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    lab.scores()
    for one in list(lab.store._place.entries()):
        entry = lab.store.get(one.key)
        if entry.meta["kind"] == "model":
            lab.store.put(one.key, {}, {**entry.meta, "layout": {"n_layers": -1}})
    again = Lab("zoo:gqa", "ioi", **SIZES, store=root)
    with watching() as watch:
        again.scores()
    assert watch.cached
    assert again.fingerprint == lab.fingerprint


# Other things than scores and outcomes


def plain(value):
    return value.tolist() if hasattr(value, "tolist") else value


ELSE = {
    "signals": lambda lab: [
        (t.values.tolist(), t.members, t.examples, dict(t.choices)) for t in vars_of(lab.signals())
    ],
    "signals without the sink": lambda lab: lab.signals(sink=False).largest.values.tolist(),
    "roles": lambda lab: {kind: {k: plain(v) for k, v in vars(t).items()} for kind, t in lab.roles().items()},
    "attention": lambda lab: [lab.attention(query=q).rows.tobytes() for q in ("answer", [2] * 12)],
    "paths": lambda lab: lab.along([lab_paths(lab)]).measure("log_prob").tolist(),
    "top tokens": lambda lab: lab.top_tokens([()], [0, 1]),
}


def vars_of(found):
    return [found.largest, found.first]


def lab_paths(lab):
    from circuittest.paths import Paths

    return Paths.of(lab.layout, ["L0.H0"], ["L1.MLP"])


@pytest.mark.parametrize("what", ELSE)
def test_other_measurements_come_back_as_they_were(root, no_weights, what):
    without = ELSE[what](Lab("zoo:gqa", "ioi", **SIZES))
    assert ELSE[what](Lab("zoo:gqa", "ioi", **SIZES, store=root)) == without
    no_weights()
    assert ELSE[what](Lab("zoo:gqa", "ioi", **SIZES, store=root)) == without


def test_traces_of_weights_come_back_as_they_were(root, no_weights):
    from circuittest.claims.pairing import weights_of_lab

    without = weights_of_lab(Lab("zoo:gqa", "ioi", **SIZES))
    assert weights_of_lab(Lab("zoo:gqa", "ioi", **SIZES, store=root)) == without
    no_weights()
    assert weights_of_lab(Lab("zoo:gqa", "ioi", **SIZES, store=root)) == without


def test_attention_and_routing_come_back_as_they_were():
    import numpy as np

    from circuittest.lab.packing import pack, unpack
    from circuittest.measure.attention import AttentionTable
    from circuittest.measure.routing import RoutingTable
    from circuittest.units import Layout

    heads = Layout(1, 2, 2).units(("head",))
    rows = np.array([[[1, np.nan], [0.5, 0.5]]], dtype=np.float32)
    attention = AttentionTable(rows, heads, (3,), (2,), (1,), {"query": "answer"})
    routing = RoutingTable(rows, (0, 2), (3,), {"batches": [[1, 2]]})
    for table in (attention, routing):
        found = unpack(pack(table))
        assert type(found) is type(table)
        for name, value in vars(table).items():
            assert (
                np.array_equal(getattr(found, name), value, equal_nan=True)
                if value is rows
                else getattr(found, name) == value
            )
