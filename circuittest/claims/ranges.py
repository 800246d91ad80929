"""Types of options whose values have a range, so that a spec is refused before anything runs."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Le

from circuittest.controls import MOST

#: A number of draws, of which at least one is needed.
Count = Annotated[int, Ge(1), Le(MOST)]
#: A number of draws; 0 leaves them out.
CountOrNone = Annotated[int, Ge(0), Le(MOST)]
#: Of a generator of random numbers.
Seed = Annotated[int, Ge(0)]
