"""Spec files: YAML with claims that people write and review. Reading one runs no code of it and loads no model."""

from circuittest.spec.load import load_spec
from circuittest.spec.run import judge
from circuittest.spec.schema import ClaimSpec, Spec

__all__ = ["ClaimSpec", "Spec", "judge", "load_spec"]
