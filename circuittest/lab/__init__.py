"""Lab: one model and one task, with every measurement made so far. What tests are handed.

The class is built up in the order in which a claim comes about: `subject` (the model and its examples), `tables`
(scores and outcomes), `circuits`, `claims` (one method each), and `Lab` itself, which measures them.
"""

from circuittest.lab.lab import Lab

__all__ = ["Lab"]
