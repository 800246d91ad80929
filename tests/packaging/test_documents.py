"""The documents: their code runs, their links lead somewhere, and nothing that exists is missing from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import circuittest.errors
from circuittest import CircuittestError, InvalidClaim, Undecided
from circuittest.cli import COMMANDS
from circuittest.models.adapters import _REGISTRY

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(document: str, language: str) -> list[str]:
    """The code blocks of one language."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(4))
def test_code_of_contributing_runs(number: int) -> None:
    found = blocks("CONTRIBUTING.md", "python")
    assert len(found) == 4
    known = dict(_REGISTRY)
    try:
        exec(compile(found[number], "CONTRIBUTING.md", "exec"), {"__name__": "contributing"})
        if number == 3:
            assert set(_REGISTRY) - set(known) == {"arcee"}
            check_adapter("arcee")
    finally:
        _REGISTRY.clear()
        _REGISTRY.update(known)


def check_adapter(model_type: str) -> None:
    """Put a registered adapter through the preflight on a tiny random model."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from circuittest.models import from_module
    from circuittest.models.preflight import preflight

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 60}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **sizes, **heads))
    assert all(check.passed for check in preflight(from_module(module.eval())))


def test_the_readme_s_tests_and_spec_pass(pytester: pytest.Pytester) -> None:
    tests = blocks("README.md", "python")
    (spec,) = blocks("README.md", "yaml")
    pytester.makepyfile(**{f"test_readme_{number}": test for number, test in enumerate(tests)})
    (pytester.path / "ioi.circuit.yaml").write_text(spec, encoding="utf-8")
    # In a process of its own: what an inner run imports is forgotten after it, and torch cannot be loaded twice.
    result = pytester.runpytest_subprocess("-p", "no:randomly")
    result.assert_outcomes(passed=len(tests) + 2)


def test_the_readme_s_spec_is_the_quickstart_s() -> None:
    def content(text: str) -> list[str]:
        return [line for line in (re.sub(r"\s*#.*", "", line) for line in text.splitlines()) if line]

    (spec,) = blocks("README.md", "yaml")
    shipped = (ROOT / "example_suites/quickstart/ioi.circuit.yaml").read_text(encoding="utf-8")
    assert content(spec) == content(shipped)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", document.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if path.startswith("https://"):
            continue
        there = (document.parent / path) if path else document
        assert there.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in [re.sub(r"[^\w-]", "", title.lower().replace(" ", "-")) for title in titles], (
                target
            )


def test_every_error_has_an_entry() -> None:
    classes = {
        name
        for name, value in vars(circuittest.errors).items()
        if isinstance(value, type) and issubclass(value, CircuittestError) and value is not CircuittestError
    } | {Undecided.__name__, InvalidClaim.__name__}
    entries = set(
        re.findall(r"^## (\w+)$", (ROOT / "docs/errors.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    assert entries == classes


def test_every_claim_task_adapter_and_command_is_named() -> None:
    from circuittest.claims import _BUILT_IN as claims
    from circuittest.tasks.catalog import BUILT_IN as tasks

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    units = (ROOT / "docs/units.md").read_text(encoding="utf-8")
    for name in (*claims, *tasks):
        assert f"`{name}`" in readme, name
    for model_type in _REGISTRY:
        assert f"`{model_type}`" in units, model_type
    for module in COMMANDS:
        command = module.__name__.rpartition(".")[2].replace("listing", "list")
        assert f"circuittest {command}" in readme, command


def test_changelog_knows_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## Unreleased" in text or f"## {circuittest.__version__}" in text
