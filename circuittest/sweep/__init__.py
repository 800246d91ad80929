"""Specs over a series of models: every spec on every model, item by item, resumable, here or on many machines.

Only `load_series`, `run`, `summary` and `scales` are meant for others.
"""

from __future__ import annotations

from circuittest.sweep.driver import run
from circuittest.sweep.series import Series, load_series
from circuittest.sweep.summary import scales, summary

__all__ = ["Series", "load_series", "run", "scales", "summary"]
