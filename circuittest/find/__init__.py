"""Circuits from measurements."""
