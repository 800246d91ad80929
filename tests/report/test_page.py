"""The page: whole, escaped, needs no network, never written over another's file."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from circuittest.circuit import Circuit
from circuittest.errors import UsageError
from circuittest.report.page import check_page, page, write_page
from circuittest.report.records import record
from circuittest.stats import Estimate, ProportionInference
from tests.helpers.html import EVIL, VOID, Parsed


def made(
    successes: int = 150, name: str = "a", threshold: float | None = 0.3, outcome: str = "passed", **more
):
    told = {"claim": "necessity", "model": "zoo:gqa", "task": "ioi", "n_examples": 200} | more
    estimate = Estimate(value=successes / 200, inference=ProportionInference(successes, 200), **told)
    return record(estimate if threshold is None else estimate >= threshold, id=name, outcome=outcome)


INVALID = record(Estimate(claim="reuse", value=None, invalid=f"no {EVIL}") >= 0.3, id="e", outcome="failed")
ALL = [
    made(
        circuit=Circuit.of(["L2.H1", "L3.MLP"], name=EVIL),
        details={"controls": [["L0.H0", "L1.H5"]], "effects": {f"L0.H{i}": 1.0 for i in range(20)}},
    ),
    made(10, EVIL, outcome="failed", choices={EVIL: EVIL}, model=EVIL, task=EVIL),
    made(65, "c"),
    made(65, "d", None),
    INVALID,
]


def test_every_claim_is_there_and_escaped():
    text = page(ALL)
    parsed = Parsed(text)
    assert {name for name, _ in parsed.elements} <= VOID | set(
        "html head title style body main a h1 h2 h3 ul li p span table caption thead tbody tr th td div article header "
        "dl dt dd figure figcaption details summary svg g rect line circle path text polyline".split()
    )
    for one in ALL:
        assert parsed.text.count(one["id"]) >= 2  # in the table, and by itself
        assert one["reason"] in parsed.text
    assert text.count("<script") == text.count("onerror=y&gt;".replace("&gt;", ">")) == 0
    assert text.count("<style>") == text.count("</style>") == 1
    assert "0.75 [0.68, 0.81]" in parsed.text
    for verdict in ("supported", "refuted", "undecided", "invalid", "measured"):
        assert f"1 {verdict}" in parsed.text
    assert ">= 0.3" in parsed.text


def test_nothing_comes_from_elsewhere_and_nothing_runs():
    parsed = Parsed(page(ALL))
    assert not re.search(r"@import|url\(|https?:|//[a-z]", re.sub(r"<title>.*?</title>", "", page(ALL[2:4])))
    for _, attrs in parsed.elements:
        assert not {"src", "srcset", "action", "style"} & set(attrs)
        assert not any(name.startswith("on") for name in attrs)
        assert attrs.get("href", "#").startswith("#")


def test_it_can_be_read_without_eyes_or_a_mouse():
    parsed = Parsed(page(ALL))
    assert parsed.headings[0] == 1
    assert parsed.headings.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(parsed.headings, parsed.headings[1:], strict=False))
    ids = [attrs["id"] for _, attrs in parsed.elements if "id" in attrs]
    assert len(set(ids)) == len(ids)
    links = {attrs["href"][1:] for attrs in parsed.all("a")}
    assert links <= set(ids)
    assert {f"claim-{i}" for i in range(1, 6)} <= links
    assert all(attrs.get("role") == "img" for attrs in parsed.all("svg"))
    tags = [name for name, _ in parsed.elements]
    assert all(tags[i + 1] == "title" for i, tag in enumerate(tags) if tag == "svg")
    assert all("scope" in attrs for attrs in parsed.all("th"))
    assert tags.count("caption") == 1
    scrolled = [attrs for attrs in parsed.all("div") if attrs.get("class") == "scroll"]
    assert {(attrs["tabindex"], attrs["role"]) for attrs in scrolled} == {("0", "group")}
    assert all(attrs["aria-label"] for attrs in scrolled)
    assert {attrs["class"] for attrs in parsed.all("figure")} == {"wide"}
    html = parsed.all("html")[0]
    assert html["lang"] == "en"


def test_the_style_has_both_modes_narrow_screens_and_a_visible_focus():
    text = page([])
    for part in ("prefers-color-scheme: dark", "max-width: 52rem", ":focus-visible", "width=device-width"):
        assert part in text
    assert text.count("{") == text.count("}")


def test_no_claims():
    parsed = Parsed(page([]))
    assert "No claim was judged or measured." in parsed.text
    assert not parsed.all("table")


def test_the_same_records_give_the_same_bytes():
    assert page(ALL) == page(ALL[::-1])


def test_open_intervals_and_named_outcomes():
    named = made(150, "n", None) | {
        "threshold": {"op": "is", "value": "load-bearing"}, "interval": [None, 0.8], "label": "moved",
    }  # fmt: skip
    text = Parsed(page([named])).text
    assert "is load-bearing" in text
    assert "[-inf, 0.80]" in text
    assert "(moved)" in text


@given(
    st.text(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([">=", ">", "<=", "<"]),
)
def test_any_text_and_any_numbers(words, value, threshold, op):
    extreme = made(150, words) | {
        "estimate": value, "interval": [min(value, threshold), max(value, threshold)], "claim": words, "reason": words,
        "threshold": {"op": op, "value": threshold},
    }  # fmt: skip
    places = [
        v
        for tag, attrs in Parsed(page([extreme])).elements
        for k, v in attrs.items()
        if k in ("x", "x1", "cx")
    ]
    assert not any("n" in place for place in places)  # nan, inf


def test_an_older_page_of_ours_is_replaced_and_nothing_else(tmp_path):
    target = tmp_path / "new" / "r.html"
    write_page(target, ALL)
    write_page(target, ALL[:1])
    assert target.read_text(encoding="utf-8") == page(ALL[:1])
    assert [path.name for path in target.parent.iterdir()] == ["r.html"]
    for content in ("precious", "<!DOCTYPE html>\n<html><body>thesis</body></html>", page([])[:60]):
        target.write_text(content, encoding="utf-8")
        for write in (check_page, lambda path: write_page(path, ALL)):
            with pytest.raises(UsageError, match="is not overwritten: it is no report of circuittest"):
                write(target)
        assert target.read_text(encoding="utf-8") == content
    target.write_text("")
    write_page(target, ALL)
    with pytest.raises(UsageError, match="it is a folder"):
        check_page(tmp_path)
