"""Does a model do IOI as Wang et al. describe it? The three shares of arXiv 2407.10827, section 4.

The heads are found on the discovery examples (`circuittest.find.ioi_heads`), the shares are measured on the evaluation
examples. In the paper the heads whose effects have the right sign are chosen and summed on the same effects, which
makes shares too large; and effects of single heads are summed, where here all heads of a kind are patched together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from circuittest.circuit import Circuit, prompt_digest
from circuittest.claims.clusters import Cluster
from circuittest.claims.groups import Group
from circuittest.find.ioi_heads import COPIES, LEAST, IOIHeads, ioi_heads, values_of
from circuittest.stats import Estimate
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.lab import Lab

SHARES = ("name_movers", "s_inhibition", "repeats")


@dataclass(frozen=True)
class IOIAlgorithm:
    """The heads of the algorithm, and how much each kind explains of the step that it is to explain.

    Attributes
    ----------
    heads:
        What was found on the discovery examples.
    shares:
        "name_movers": of what all heads write to the logits directly, the share of name movers. "s_inhibition": of what
        all earlier heads bring to the queries of the name movers, the share of S-inhibition heads. "repeats": of what
        all earlier heads bring to the values that S-inhibition heads read, the share of induction and duplicate-token
        heads. Estimates of the claim `path`; invalid where the model does not do the task, or no such heads were
        found.
    """

    heads: IOIHeads
    shares: Mapping[str, Estimate]


def ioi_algorithm(
    lab: Lab,
    *,
    least: float = LEAST,
    copies: float = COPIES,
    mlps: Literal["frozen", "recomputed"] = "frozen",
    cluster: Cluster = "none",
    seed: int = 0,
) -> IOIAlgorithm:
    """Find the heads of the IOI algorithm, and measure the shares of their paths on other examples.

    Parameters
    ----------
    least, copies, mlps:
        As for `circuittest.find.ioi_heads.ioi_heads`.
    cluster, seed:
        As for the claim `path`.

    Raises
    ------
    UsageError
        Where the task's examples are no IOI prompts.
    """
    found = ioi_heads(lab.model, lab.data.discover, least=least, copies=copies, mlps=mlps)
    prompts = [prompt_digest(item.prompt_ids) for item in lab.data.discover]
    steps: dict[str, tuple[Sequence[Unit], list[str]]] = {
        "name_movers": (found.name_movers, ["logits"]),
        "s_inhibition": (found.s_inhibition, [f"{mover}.q" for mover in found.name_movers]),
        "repeats": (found.repeats, values_of(lab.layout, found.s_inhibition)),
    }
    shares: dict[str, Estimate] = {}
    why = ""
    for name in SHARES:
        heads, receivers = steps[name]
        why = why or (f"no {name} were found: {found.missing[name]}" if name in found.missing else "")
        if why:
            choices: dict[str, Any] = {"to": receivers, "share_of": "received", **found.choices}
            shares[name] = lab.estimate("path", None, choices=choices, invalid=why)
            continue
        origin = {"method": "ioi_heads", "prompts": prompts}
        sending = Group.named(name, Circuit.of(heads, name=name, layout=lab.layout, origin=origin))
        how: dict[str, Any] = {"share_of": "received", "mlps": mlps, "cluster": cluster, "seed": seed}
        shares[name] = lab.measure("path", from_=sending, to=Group.of(receivers), **how)
    return IOIAlgorithm(found, shares)
