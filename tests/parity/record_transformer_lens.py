"""Node scores by TransformerLens 4's attribution patching, written as JSON.

    PYTHONPATH=. PYTHON -m tests.parity.record_transformer_lens OUT.json

PYTHON has transformer-lens 4. Its gradients are those of the corrupted run, and it scores the step towards the clean
one; here the prompts change places, so that both differentiate at the same run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.tools.analysis import attribution_patch
from transformers import PreTrainedTokenizerFast

from tests.parity import gpt2


def bridged() -> TransformerBridge:
    """The same model behind TransformerLens's hooks, weights untouched."""
    from tokenizers import Tokenizer, models

    vocabulary = {f"t{i}": i for i in range(gpt2.VOCABULARY)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="t0"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="t0", eos_token="t0", pad_token="t0"
    )
    folder = tempfile.mkdtemp()
    gpt2.model().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    made = TransformerBridge.boot_transformers(folder, device="cpu")
    made.eval()
    ids = torch.tensor([item.prompt_ids for item in gpt2.items()])
    with torch.no_grad():
        torch.testing.assert_close(made(ids), gpt2.model()(ids).logits, rtol=1e-4, atol=1e-4)
    return made


def record() -> dict[str, list[float]]:
    """Unit → score of each example."""
    model = bridged()
    found: dict[str, list[float]] = {}
    for item in gpt2.items():
        metric = lambda logits, a=item.answer_ids[0], f=item.foil_ids[0]: logits[0, -1, a] - logits[0, -1, f]
        result = attribution_patch(
            model,
            clean=torch.tensor([item.counterfactual_ids]),
            corrupt=torch.tensor([item.prompt_ids]),
            metric_fn=metric,
        )
        totals: dict[str, float] = {}
        for node, score in result.node_scores.items():
            name = {"embed": "embed", "mlp_out": f"L{node.layer}.MLP"}.get(
                node.kind, f"L{node.layer}.H{node.head}"
            )
            totals[name] = totals.get(name, 0.0) + float(score)  # the nodes are apart by position
        for name, score in totals.items():
            found.setdefault(name, []).append(score)
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(record(), indent=0, sort_keys=True) + "\n")
