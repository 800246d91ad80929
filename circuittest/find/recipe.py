"""The recipe of a circuit: what `Lab.shared` was told, kept in the circuit's origin, by which claims find others alike.

This is the one place that knows which keys of an origin are the recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from circuittest.circuit import Circuit

#: How per-example scores are made: arguments of `Lab.scores`. Those of the second line may be missing: `steps` where
#: no path is involved, `dtype` where it is the model's own, the others in circuits that were written by hand.
SCORING = ("method", "universe", "score")
SCORING_TOO = ("level", "baseline", "steps", "dtype")
#: How S_P is made of them.
SHARING = ("top", "at")


def recipe_of(origin: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments with which `Lab.shared` finds a circuit likewise; None where it did not find this one."""
    if any(origin.get(key) is None for key in (*SCORING, *SHARING)):
        return None
    return {key: origin[key] for key in (*SCORING, *SCORING_TOO, *SHARING) if key in origin}


def propose(lab: Any, how: Mapping[str, Any]) -> Circuit:
    """The circuit that a spec describes, found on a lab: by `Lab.shared`, or with ``method: minimal`` by `Lab.minimal`.

    The latter is given as its units, which most claims are about, or with ``level: edges`` as its edges; where the
    level of faithfulness is not reached it is empty, and says why.
    """
    options = dict(how)
    if options.get("method") != "minimal":
        shared: Circuit = lab.shared(**options)
        return shared
    del options["method"]
    level = options.pop("level", "units")
    found = lab.minimal(**options)
    minimal: Circuit = found.circuit if level == "edges" else found.units
    return minimal


def scoring_of(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Of a recipe, the arguments of `Lab.scores`."""
    return {key: recipe[key] for key in (*SCORING, *SCORING_TOO) if key in recipe}


def unit_scoring(origin: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Lab.scores`, but the universe, that score units as a circuit's were, as far as it says."""
    own = {
        key: origin[key]
        for key in ("method", "score", "baseline", "steps", "dtype")
        if origin.get(key) is not None
    }
    found = {"method": "eap", "score": "edge-abs-sum", **own}
    if found["score"] in ("edge", "exact") and found["method"] != "exact":
        found["score"] = "edge-abs-sum"  # of a circuit of edges
    return found
