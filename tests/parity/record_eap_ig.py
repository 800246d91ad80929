"""Edge scores by the published EAP-IG code (hannamw/EAP-IG, Hanna et al., arXiv 2403.17806), written as JSON.

    PYTHONPATH=. PYTHON -m tests.parity.record_eap_ig EAP_IG_CHECKOUT OUT.json

PYTHON has transformer-lens below 4. Changes to the published code: 'cuda' becomes 'cpu', and prompts are token ids.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights

from tests.parity import gpt2


def hooked() -> HookedTransformer:
    """The same weights in TransformerLens, nothing folded or centred."""
    config = HookedTransformerConfig(
        n_layers=gpt2.LAYERS,
        d_model=gpt2.WIDTH,
        n_heads=gpt2.HEADS,
        d_head=gpt2.WIDTH // gpt2.HEADS,
        d_mlp=4 * gpt2.WIDTH,
        n_ctx=16,
        d_vocab=gpt2.VOCABULARY,
        act_fn="gelu_new",
        normalization_type="LN",
        device="cpu",
    )
    made = HookedTransformer(config)
    made.load_state_dict(convert_gpt2_weights(gpt2.model(), config), strict=False)
    made.eval()
    made.set_use_attn_result(True)
    made.set_use_split_qkv_input(True)
    made.set_use_hook_mlp_in(True)
    ids = torch.tensor([item.prompt_ids for item in gpt2.items()])
    with torch.no_grad():
        torch.testing.assert_close(made(ids), gpt2.model()(ids).logits, rtol=1e-4, atol=1e-4)
    return made


def published(checkout: Path) -> tuple[Any, Any]:
    """Modules ``eap.attribute`` and ``eap.graph`` on the CPU."""
    folder = Path(tempfile.mkdtemp())
    (folder / "eap").mkdir()
    for file in (checkout / "src" / "eap").glob("*.py"):
        (folder / "eap" / file.name).write_text(re.sub(r"['\"]cuda['\"]", "'cpu'", file.read_text()))
    sys.path.insert(0, str(folder))
    from eap import attribute, graph  # type: ignore[import-not-found]

    attribute.tokenize_plus = lambda _model, ids: (
        torch.tensor(ids),
        torch.ones(len(ids), len(ids[0]), dtype=torch.long),
        torch.full((len(ids),), len(ids[0])),
        len(ids[0]),
    )
    return attribute, graph


def our_name(edge: str) -> str:
    """``a0.h1->a2.h3<k>`` as ``L0.H1->L2.KV3.k``."""
    writer, reader = edge.split("->")
    heads = re.compile(r"a(\d+)\.h(\d+)(?:<(.)>)?")

    def unit(text: str) -> str:
        if found := heads.fullmatch(text):
            layer, head, slot = found.groups()
            kind = "H" if slot in (None, "q") else "KV"
            return f"L{layer}.{kind}{head}" + (f".{slot}" if slot else "")
        return {"input": "embed", "logits": "logits"}.get(text) or f"L{text[1:]}.MLP"

    return f"{unit(writer)}->{unit(reader)}"


def record(checkout: Path) -> dict[str, Any]:
    """Method → edge → score of each example."""
    attribute, graph = published(checkout)
    model = hooked()

    def metric(logits: torch.Tensor, _clean: Any, _lengths: Any, label: Any) -> torch.Tensor:
        (answer,), (foil,) = label
        return logits[0, -1, answer] - logits[0, -1, foil]

    found: dict[str, Any] = {"steps": gpt2.STEPS}
    for method, choices in (("eap", {}), ("eap-ig", {"steps": gpt2.STEPS})):
        scores: dict[str, list[float]] = {}
        for item in gpt2.items():
            g = graph.Graph.from_model(model)
            data = [([item.prompt_ids], [item.counterfactual_ids], (item.answer_ids, item.foil_ids))]
            name = "EAP" if method == "eap" else "EAP-IG-inputs"
            run = attribute.get_scores_eap if name == "EAP" else attribute.get_scores_eap_ig
            g.scores[:] = run(model, g, data, metric, quiet=True, **choices)
            for edge in g.edges.values():
                scores.setdefault(our_name(edge.name), []).append(float(edge.score))
        found[method] = scores
    return found


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(record(Path(sys.argv[1])), indent=0, sort_keys=True) + "\n")
