"""Verdict records and how they are shown. Light at import: rich is loaded by what draws."""
