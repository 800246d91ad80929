"""The rows that a lock holds of its base and that are measured again here: nothing, the universe, the circuit and its
control sets ablated, and the circuit kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from circuittest.errors import UsageError
from circuittest.lock import ACCURACIES, GRADED, Outcomes
from circuittest.stats.resampling import Floats
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

#: Control sets whose outcomes a lock keeps, drawn with this seed.
CONTROLS, SEED = 40, 0


@dataclass(frozen=True)
class Rows:
    """One measure with nothing, the universe, and the circuit ablated, and its mean over the control sets; each [n]."""

    nothing: Floats
    universe: Floats
    circuit: Floats
    controls: Floats

    @property
    def beyond(self) -> Floats:
        """[n] damage beyond the controls."""
        return self.controls - self.circuit


def measured_rows(
    lab: Lab,
    universe: Sequence[Unit],
    circuit: Sequence[Unit],
    controls: Sequence[Sequence[Unit]],
    column: str,
) -> tuple[Floats, Floats]:
    """[4 × n] rows of `Rows`, and [R × n] of the controls.

    Locks are made and compared by the same calls, so that equal models give equal bits.
    """
    ends = lab.outcomes([(), universe]).measure(column)
    ablated = lab.outcomes([circuit]).measure(column)
    table = lab.outcomes(controls).measure(column)
    return np.vstack((ends, ablated, table.mean(0))), table


def measured_kept(lab: Lab, universe: Sequence[Unit], circuit: Sequence[Unit]) -> Any:
    """Outcomes with nothing of the universe kept, and with the circuit alone; the rest as on the counterfactual."""
    parts, members = lab.layout.expand(universe), lab.layout.expand(circuit)
    only = tuple(sorted(set(parts) - set(members)))
    return lab.outcomes([parts, only], value="counterfactual")


def outcomes_of(lab: Lab, circuit: Circuit, universe: Sequence[Unit], controls: Sequence[Any]) -> Outcomes:
    """What a lab's model does with nothing, the universe, a circuit and its controls ablated, and with it kept."""
    columns = lab.outcomes([(), universe]).columns
    rows = {
        key: measured_rows(lab, universe, circuit.units, controls, key)
        for key in (*ACCURACIES, *GRADED)
        if key in columns
    }
    kept, no_kept = {}, ""
    if lab.layout.expand(circuit.units) == lab.layout.expand(universe):
        no_kept = "the circuit is the whole universe: keeping it is the model itself"
    else:
        try:
            table = measured_kept(lab, universe, circuit.units)
            kept = {key: table.measure(key) for key in rows}
        except UsageError as error:  # examples without a counterfactual of their length
            no_kept = str(error)
    return Outcomes(
        tuple(str(unit) for unit in universe),
        tuple(tuple(str(unit) for unit in units) for units in controls),
        {key: np.vstack((rows[key][0][:3], rows[key][1])) for key in ACCURACIES if key in rows},
        {key: rows[key][0] for key in GRADED if key in rows},
        kept,
        no_kept,
    )
