"""Proof of intervention, unit by unit, at its site: a hook that fired proves nothing, nor do logits that moved.

At every site the units of a set have exactly the values that were asked for, at the positions asked for, and
everything else is untouched. Heads and neurons: the projection's output is that of this input (zeroed heads changed it
by exactly −W[:, slice]·z), within the noise of the dtype, at the position where the unit changed most. MLPs: what the
block adds to the residual after attention is this output. Experts: see `circuittest.measure.expert_proof`. A unit that
had these values already counts as proven, and is listed.
Hooks that narrow what a module sees (the last block's answer position) come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from circuittest.errors import InterventionError
from circuittest.measure.batches import precision
from circuittest.measure.expert_proof import DO, ExpertProof, first_replaced, named_units
from circuittest.measure.interventions import Intervention
from circuittest.measure.sites import Site
from circuittest.models.hooks import Change, hooks, on_input, on_output
from circuittest.models.loaded import LoadedModel, weight_in_out
from circuittest.units import Unit


@dataclass
class Ledger:
    """What the proofs of one ablation share.

    Attributes
    ----------
    unchanged:
        Units whose values were already those that they were to be replaced by.
    gains:
        Site → largest norm of a column of its projection, the scale of rounding errors.
    """

    unchanged: set[Unit] = field(default_factory=set)
    gains: dict[Site, float] = field(default_factory=dict)


@dataclass
class Proof:
    """Watches one pass of an `Intervention` and judges it afterwards."""

    intervention: Intervention
    ledger: Ledger = field(default_factory=Ledger)
    before: dict[tuple[Site, str], Tensor] = field(default_factory=dict)
    after: dict[tuple[Site, str], Tensor] = field(default_factory=dict)
    calls: dict[Site, ExpertProof] = field(default_factory=dict)

    @property
    def model(self) -> LoadedModel:
        """The model that is watched."""
        return self.intervention.model

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites of all units of all sets."""
        return tuple(sorted({Site.of(part) for parts in self.intervention.sets for part in parts}))

    @contextmanager
    def watch_before(self) -> Iterator[None]:
        """What the units would have been; to be entered before the intervention."""
        with ExitStack() as stack:
            for site in self.sites:
                if site.kind == "expert":
                    self.calls[site] = ExpertProof(self.intervention, site)
                    stack.enter_context(self.calls[site].watch_before())
                else:
                    stack.enter_context(site.hooked(self.model, self._keep(self.before, site, "site")))
            yield

    @contextmanager
    def watch_after(self) -> Iterator[None]:
        """What the modules really ran on and gave; to be entered after the intervention."""

        def look(site: Site) -> Any:
            def hook(_module: Any, args: tuple[Any, ...], output: Tensor) -> None:
                self._keep(self.after, site, "site")(args[0])
                self._keep(self.after, site, "out")(output)

            return hook

        with ExitStack() as stack:
            for site in self.sites:
                if site.kind == "expert":
                    stack.enter_context(self.calls[site].watch_after())
                elif site.kind == "mlp":
                    self._watch_mlp(stack, site)
                else:
                    handle = site.module(self.model).register_forward_hook(look(site))
                    stack.enter_context(hooks(handle))
            yield

    def _watch_mlp(self, stack: ExitStack, site: Site) -> None:
        block = self.model.blocks[site.layer]
        stack.enter_context(site.hooked(self.model, self._keep(self.after, site, "site")))
        stack.enter_context(on_output(block.block, self._keep(self.after, site, "block")))
        if self.model.layout.parallel:
            stack.enter_context(on_input(block.block, self._keep(self.after, site, "base")))
            stack.enter_context(on_output(block.out, self._keep(self.after, site, "attn")))
        else:
            entry = block.mlp if block.mlp_norm is None else block.mlp_norm
            # Ahead of hooks that narrow what the MLP sees.
            stack.enter_context(on_input(entry, self._keep(self.after, site, "base"), ahead=True))

    @torch.no_grad()
    def check(self) -> None:
        """Raise InterventionError naming the first unit whose intervention is not proven."""
        for site in self.sites:
            if site.kind == "expert":
                self.ledger.unchanged.update(self.calls[site].check())
            else:
                self._check(site)

    def _check(self, site: Site) -> None:
        apart = lambda tensor: site.apart(self.model, tensor).unflatten(0, (len(self.intervention.sets), -1))
        before, seen = apart(self._seen(self.before, site, "site")), self._seen(self.after, site, "site")
        sets, units = named_units(self.intervention, site)
        if seen.shape != self.before[site, "site"].shape:
            name = site.unit(int(units[0]))
            raise InterventionError(f"{name} was not ablated", "its module ran on another shape", DO)
        after = apart(seen)
        positions = before.shape[2]
        start = first_replaced(self.intervention, positions)
        expected = before.clone()
        asked = self.intervention.values.at[site][:, -positions:].expand_as(before[0])
        for row, part in enumerate(expected):
            mine = units[sets == row]
            part[:, start:, mine] = asked[:, start:, mine]
        # The sum is a fast first look: it is finite unless a value is not, or it overflows.
        if not bool(expected.sum(dtype=precision(self.model.dtype)).isfinite()) and not bool(
            torch.isfinite(expected).all()
        ):
            index = int((~torch.isfinite(expected)).flatten(0, 2).any(2).any(0).nonzero()[0])
            raise InterventionError(
                f"{site.unit(index)} is not finite", "its activations overflowed", "run in float32"
            )
        if not torch.equal(after, expected):
            self._blame(site, expected, after)
        # What each unit lost [units, examples · positions, size], and where most.
        lost = (before[sets, :, :, units] - expected[sets, :, :, units]).flatten(1, 2)
        largest, where = lost.abs().amax(2).max(1)
        self.ledger.unchanged.update(site.unit(i) for i in units[largest == 0].tolist())
        if site.kind == "mlp":
            self._check_block(site, seen)
        else:
            most = lost[torch.arange(len(lost), device=where.device), where]
            self._check_outputs(site, sets * lost.shape[1] + where, units, most)

    def _blame(self, site: Site, expected: Tensor, after: Tensor) -> None:
        """Name what is wrong with the tensor at the site [sets, examples, positions, units, size]."""
        wrong = (after != expected).flatten(1, 2).any(3).any(1)  # [sets, units]
        sets, units = named_units(self.intervention, site)
        if bool((hit := wrong[sets, units]).any()):
            raise InterventionError(
                f"{site.unit(int(units[hit][0]))} was not ablated",
                "what was read at its site is not what was asked for",
                DO,
            )
        row, index = wrong.nonzero()[0].tolist()
        mine = units[sets == row].tolist()
        who = f"ablating {site.unit(mine[0])}" if mine else f"a set without units of layer L{site.layer}"
        raise InterventionError(f"{who} changed {site.unit(index)}, which is not in the set", "", DO)

    def _check_outputs(self, site: Site, flat: Tensor, units: Tensor, lost: Tensor) -> None:
        """Is the projection's output that of its input at some rows, one for each unit?

        flat [units]: rows among sets · examples · positions. lost [units, size]: what the unit should have lost there.
        """
        rows, inverse = flat.unique(return_inverse=True)
        after = self.after[site, "site"].flatten(0, 1)[rows]
        out = self._seen(self.after, site, "out").flatten(0, 1)[rows]
        module, dtype = site.module(self.model), precision(self.model.dtype)
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.is_floating_point() and not self.model.quantised:
            matrix, bias = weight_in_out(module).to(dtype), getattr(module, "bias", None)
            expected = after.to(dtype) @ matrix + (0 if bias is None else bias.to(dtype))
            if site not in self.ledger.gains:
                self.ledger.gains[site] = float(matrix.norm(dim=0).max())
            scale = after.to(dtype).norm(dim=1) * self.ledger.gains[site] + expected.abs().amax(1)
            linear = lambda part: part.to(dtype) @ matrix
        else:
            expected = module.forward(after).to(dtype)
            scale = expected.norm(dim=1)
            linear = lambda part: (module.forward(part) - module.forward(torch.zeros_like(part))).to(dtype)
        error = (out.to(dtype) - expected).abs().amax(1)
        wrong = ~(error <= 16 * torch.finfo(self.model.dtype).eps * scale)
        if bool(wrong.any()):
            one = int(wrong[inverse].nonzero()[0])
            row, index = int(inverse[one]), int(units[one])
            part = torch.zeros_like(after[0]).unflatten(0, (site.units(self.model), -1))
            part[index] = lost[one]
            write = linear(part.flatten())
            left = (out[row].to(dtype) - expected[row]) @ write / write.pow(2).sum()
            raise InterventionError(
                f"{site.unit(index)} was not ablated",
                f"the projection did not use its ablated input: {float(left):.2f} of the unit's write is left",
                DO,
            )

    def _check_block(self, site: Site, after: Tensor) -> None:
        """Does the block add to the residual exactly what the MLP gave, behind its post-norm?"""
        base = self._seen(self.after, site, "base")
        if self.model.layout.parallel:
            attention = self._seen(self.after, site, "attn")
            base = base.to(attention.device) + attention
        block = self._seen(self.after, site, "block")
        base = base.to(block.device)  # the block can be handed it on the device of the one before
        norm = self.model.blocks[site.layer].mlp_post_norm
        write = after if norm is None else norm.forward(after)
        largest = max(float(part.abs().max()) for part in (block, base, write))
        error = (
            (block - base - write).abs().unflatten(0, (len(self.intervention.sets), -1)).flatten(1).amax(1)
        )
        mine = error[named_units(self.intervention, site)[0]]
        if not bool((mine <= 4 * torch.finfo(self.model.dtype).eps * largest).all()):
            raise InterventionError(
                f"{site.unit(0)} was not ablated", "its block adds something else to the residual", DO
            )

    def _keep(self, where: dict[tuple[Site, str], Tensor], site: Site, role: str) -> Change:
        def hook(tensor: Tensor) -> None:
            where[site, role] = tensor.clone() if self.model.in_place else tensor

        return hook

    def _seen(self, where: dict[tuple[Site, str], Tensor], site: Site, role: str) -> Tensor:
        if (site, role) not in where:
            raise InterventionError(
                f"nothing was seen of layer L{site.layer} while it was ablated",
                "its modules did not run",
                DO,
            )
        return where[site, role]
