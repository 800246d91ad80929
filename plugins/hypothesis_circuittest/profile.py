"""The settings profile "circuits", for properties of circuits. Importing this registers it; nothing of ours loads it.

    pytest --hypothesis-profile=circuits

or, in a conftest, ``import hypothesis_circuittest.profile`` and ``hypothesis.settings.load_profile("circuits")``.

- No deadline: the first draw may load a model, later ones may find everything measured. Slow draws are no failure.
- At most 100 draws.
- In CI (the variable CI is set, as it is everywhere) the draws are the same in every run and nothing is remembered.
  Elsewhere they are random, and failures are kept in Hypothesis's example database, a folder that the workers of
  pytest-xdist may share.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

NAME = "circuits"

settings.register_profile(
    NAME, max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False
)
if "CI" in os.environ:
    settings.register_profile(
        NAME, parent=settings.get_profile(NAME), derandomize=True, database=None, print_blob=True
    )
