"""`correction: holm`: the verdict of a claim with all claims of its file taken into account."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.errors import SpecError, UsageError
from circuittest.spec import judge, load_spec
from circuittest.stats import Estimate, ProportionInference, announce, holm, listen_measured
from circuittest.units import Layout

HEAD = "circuittest: 1\nmodel: a\ntask: ioi\ncircuit: {units: [L0.H1]}\n"


class Counts:
    """A lab whose claims are proportions of 200, by seed; None is invalid."""

    def __init__(self, *counts: int | None) -> None:
        self.layout, self.counts = Layout(3, 4, 2), counts
        self.asked: list[tuple[int, float | None]] = []

    def circuit(self, source: Circuit) -> Circuit:
        return source

    def measure(self, claim, circuit, *, decide=None, confidence=None, seed=0):
        self.asked.append((seed, confidence))
        count = self.counts[seed]
        if count == -1:
            raise UsageError("no such thing", "", "")
        inference = None if count is None else ProportionInference(count, 200)
        found = Estimate(
            claim=claim,
            value=None if count is None else count / 200,
            inference=inference,
            invalid="" if count is not None else "why not",
            confidence=confidence or 0.95,
        )
        announce(found)
        return found


@pytest.fixture
def spec(tmp_path):
    def spec(*ops: str, correction: str = "correction: holm\n"):
        path = tmp_path / "x.circuit.yaml"
        claims = "".join(f"  - coverage: {{{op}, seed: {i}, id: c{i}}}\n" for i, op in enumerate(ops))
        path.write_text(f"{HEAD}{correction}claims:\n{claims}")
        return load_spec(path, name="x.circuit.yaml")

    return spec


def verdicts(spec, *counts):
    return [judge(spec, claim, Counts(*counts)) for claim in spec.claims]


def p_of(count: int, op: str = ">=", threshold: float = 0.3) -> float:
    return ProportionInference(count, 200).p_value(op, threshold)


def test_p_values_are_those_of_holm_over_the_file(spec) -> None:
    counts = (72, 76, 80, 150)
    found = verdicts(spec(*["min: 0.3"] * 4), *counts)
    expected = holm([p_of(count) for count in counts])
    assert [v.p_value for v in found] == pytest.approx(expected)
    assert [v.outcome for v in found] == ["supported" if p <= 0.025 else "undecided" for p in expected]


def test_what_is_supported_alone_may_be_open_among_others(spec) -> None:
    one = spec("min: 0.3")
    count = next(c for c in range(200) if p_of(c) <= 0.02)
    assert verdicts(one, count)[0].outcome == "supported"
    (first, _, _) = verdicts(spec(*["min: 0.3"] * 3), count, 60, 60)
    assert first.outcome == "undecided"
    assert "Holm" in first.reason
    assert "3 claims" in first.reason
    assert first.estimate.confidence == 0.95
    assert first.estimate.details["correction"]["p"] == pytest.approx(p_of(count))


def test_the_steps_decide_more_than_bonferroni(spec) -> None:
    # p between 0.0125 and 0.025: above Bonferroni's level of two claims, and the other claim is clear
    count = next(c for c in range(200) if 0.0125 < p_of(c) <= 0.025)
    assert [v.outcome for v in verdicts(spec("min: 0.3", "min: 0.3"), count, 150)] == [
        "supported",
        "supported",
    ]
    assert [v.outcome for v in verdicts(spec("min: 0.3", "min: 0.3"), count, 60)] == [
        "undecided",
        "undecided",
    ]


def test_refuting_is_a_family_of_its_own(spec) -> None:
    count = next(c for c in range(199, 0, -1) if p_of(c, "<") <= 0.02)
    many = verdicts(spec(*["min: 0.3"] * 3), count, 150, 150)
    assert [v.outcome for v in many] == ["undecided", "supported", "supported"]
    clear = verdicts(spec(*["min: 0.3"] * 3), 5, 150, 60)
    assert [v.outcome for v in clear] == ["refuted", "supported", "undecided"]
    assert not clear[0]


def test_one_claim_alone_is_judged_as_ever(spec) -> None:
    for count in range(40, 85):
        plain = verdicts(spec("min: 0.3", correction=""), count)[0]
        held = verdicts(spec("min: 0.3"), count)[0]
        assert (plain.outcome, plain.p_value) == (held.outcome, held.p_value)
        assert "correction" not in plain.estimate.details


def test_invalid_and_failing_claims_count(spec) -> None:
    count = next(c for c in range(200) if 0.0125 < p_of(c) <= 0.025)
    for other in (None, -1):
        lab = Counts(count, other)
        both = spec("min: 0.3", "min: 0.3")
        assert judge(both, both.claims[0], lab).outcome == "undecided"
    assert judge(both, both.claims[1], Counts(count, None)).outcome == "invalid"
    with pytest.raises(SpecError, match="no such thing"):
        judge(both, both.claims[1], Counts(count, -1))


def test_only_the_claim_itself_is_announced_and_each_is_measured_once_more_at_most(spec) -> None:
    three, lab, heard = spec(*["min: 0.3"] * 3), Counts(100, 110, 120), []
    with listen_measured(heard.append):
        for claim in three.claims:
            judge(three, claim, lab)
    assert [e.value for e in heard] == [0.5, 0.55, 0.6]
    assert [seed for seed, _ in lab.asked] == [0, 1, 2, 1, 2]
    assert {confidence for _, confidence in lab.asked} == {1 - 0.05 / 3}


def test_the_verdict_does_not_depend_on_what_ran_before(spec) -> None:
    counts, three = (72, 76, 150), spec(*["min: 0.3"] * 3)
    lab = Counts(*counts)
    in_turn = [judge(three, claim, lab) for claim in reversed(three.claims)][::-1]
    alone = verdicts(three, *counts)
    assert [(v.outcome, v.p_value, v.reason) for v in in_turn] == [
        (v.outcome, v.p_value, v.reason) for v in alone
    ]


def test_other_corrections_are_refused(spec) -> None:
    with pytest.raises(SpecError, match="holm"):
        spec("min: 0.3", correction="correction: bonferroni\n")


def test_false_verdicts_of_a_file_at_the_boundary(spec) -> None:
    # ten claims whose true value is the threshold: any verdict is false
    ten, rng, repetitions = spec(*["above: 0.3"] * 10), np.random.default_rng(0), 60
    supported = refuted = 0
    for _ in range(repetitions):
        lab = Counts(*(int(c) for c in rng.binomial(200, 0.3, 10)))
        outcomes = [judge(ten, claim, lab).outcome for claim in ten.claims]
        supported += "supported" in outcomes
        refuted += "refuted" in outcomes
    limit = 0.025 + 2.6 * (0.025 * 0.975 / repetitions) ** 0.5
    assert max(supported, refuted) / repetitions <= limit


def test_a_file_that_was_changed_is_judged_anew_on_the_same_lab(spec) -> None:
    count = next(c for c in range(200) if 0.0125 < p_of(c) <= 0.025)
    lab = Counts(count, 150)
    first = spec("min: 0.3", "min: 0.3")
    assert judge(first, first.claims[0], lab).outcome == "supported"
    again = spec("min: 0.3", "min: 0.8")  # the other claim does not hold any more
    assert judge(again, again.claims[0], lab).outcome == "undecided"


@pytest.mark.parametrize("outcome", ["supported", "refuted"])
def test_a_verdict_without_a_p_value_is_not_decided_uncorrected(outcome: str) -> None:
    from circuittest.spec.correction import _judged
    from circuittest.stats import Estimate, Verdict

    verdict = Verdict(Estimate(claim="own", value=1.0), ">=", 0.5, outcome, "by its own rule")  # type: ignore[arg-type]
    judged = _judged(verdict, (None, None), [None, None], 3)
    assert judged.outcome == "undecided"
    assert "no p-value" in judged.reason
