"""Tiny trained models that ship with the package."""
