"""Hypothesis strategies for layouts, units, circuits and matched controls."""
