"""What the specs do not say: a map of the heads, and what happens when MLPs are ranked with the heads."""

import pytest

PREFIX = "<|endoftext|>"  # it separated the training documents; without it the first word becomes the sink


class OnTask:
    """The same questions on every task; the labs are those of the specs."""

    def test_preflight(self, lab):
        assert lab.layout.describe().startswith(
            "it has layers L0 to L29, heads H0 to H8 and KV groups KV0 to KV2"
        )
        assert all(check.passed for check in lab.model.checks)

    def test_map_of_the_heads(self, lab, capsys):
        """Mean score of every head over the discovery examples; the shared circuit in brackets."""
        from circuittest.report.heatmap import heatmap

        circuit = lab.shared(top="5%", at=95, universe="heads")
        table = lab.scores(universe="heads")
        means = dict(zip(table.members, table.values.mean(0), strict=True))
        shown = heatmap(means, circuit=circuit.units)
        with capsys.disabled():
            print(f"\n{lab}: {len(circuit)} of {len(means)} heads\n{shown}")
        assert shown.count("[") >= len(circuit) > 0

    def test_with_mlps_the_controls_may_be_destroyed_too(self, lab):
        """Of all units the shared ones are an early MLP or two; claims that cannot be judged say so."""
        found = lab.necessity(lab.shared(top="2%", at=95, universe="all"), controls=20)
        assert found.details["floor"]["accuracy"] >= 0.5
        assert found.invalid == "" or "control destroys the model too" in found.invalid


@pytest.mark.circuit(model="smollm2", task="ioi", prefix=PREFIX)
class TestIOI(OnTask):
    """Indirect object identification."""


@pytest.mark.circuit(model="smollm2", task="sva", prefix=PREFIX)
class TestAgreement(OnTask):
    """Subject–verb agreement."""


@pytest.mark.circuit(model="smollm2", task="facts", prefix=PREFIX)
class TestCapitals(OnTask):
    """Capitals of countries."""
