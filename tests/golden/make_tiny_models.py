"""Logits of tiny models of every family that the runtime runs, by Hugging Face transformers.

    python make_tiny_models.py > tiny_models.json      (needs torch and transformers; made with 5.24)

Weights come from a formula that the test has as well, so that the file holds no weights:
    h = (i + 1) * 0x9E3779B1 ^ fnv1a(name);  h ^= h >> 15;  h *= 0x85EBCA77;  h ^= h >> 13
    v = (h >> 16) / 32768 - 1                       all in 32 bits; i counts the elements of a tensor
    norms: base + v / 2, base 0 in Gemma and 1 elsewhere;  embeddings: v;  all others: v / 4
"""

import json

import numpy as np
import torch
import transformers

TOKENS = [(7 * i * i + 3 * i + 1) % 61 for i in range(40)]
POSITIONS = [0, 11, 39]  # whose logits are kept

SHAPE = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-5,
             tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)

MODELS = {
    "llama, all heads": ("llama", dict(num_key_value_heads=4, rope_theta=10000.0)),
    "llama, tied, biases": ("llama", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                                          head_dim=16)),
    "llama, llama3 rope": ("llama", dict(rope_theta=500000.0, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32))),
    "llama, linear rope": ("llama", dict(rope_scaling=dict(rope_type="linear", factor=4.0))),
    "llama, yarn": ("llama", dict(head_dim=32, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=16))),
    "mistral, window": ("mistral", dict(sliding_window=9, head_dim=16)),
    "mistral": ("mistral", dict(sliding_window=None, head_dim=24)),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True)),
    "qwen2, yarn, windows": ("qwen2", dict(use_sliding_window=True, sliding_window=10, max_window_layers=1,
                                           rope_scaling=dict(rope_type="yarn", factor=2.0, beta_fast=16.0,
                                                             original_max_position_embeddings=32))),
    "qwen3": ("qwen3", dict(head_dim=32)),
    "qwen3, tied": ("qwen3", dict(head_dim=16, tie_word_embeddings=True, rope_theta=1000000.0)),
    "gemma3": ("gemma3_text", dict(num_hidden_layers=7, head_dim=32, sliding_window=8, tie_word_embeddings=True,
                                   sliding_window_pattern=6, query_pre_attn_scalar=32,
                                   rope_local_base_freq=10000.0, rope_theta=1000000.0,
                                   rope_scaling=dict(rope_type="linear", factor=8.0))),
    "gemma3, soft cap": ("gemma3_text", dict(num_hidden_layers=3, head_dim=16, sliding_window=6, num_key_value_heads=1,
                                              tie_word_embeddings=True, sliding_window_pattern=3,
                                              final_logit_softcapping=2.0)),
    "gemma2, windows, soft caps": ("gemma2", dict(num_hidden_layers=3, head_dim=16, sliding_window=6,
                                                  tie_word_embeddings=True, query_pre_attn_scalar=16,
                                                  attn_logit_softcapping=3.0, final_logit_softcapping=20.0)),
}


def fnv1a(name):
    h = 0x811C9DC5
    for byte in name.encode():
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h


def values(name, shape):
    i = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint32)
    h = i * np.uint32(0x9E3779B1) ^ np.uint32(fnv1a(name))
    h ^= h >> np.uint32(15)
    h *= np.uint32(0x85EBCA77)
    h ^= h >> np.uint32(13)
    return ((h >> np.uint32(16)).astype(np.float64) / 32768 - 1).reshape(shape)


def weight(name, shape, norm_base):
    v = values(name, shape)
    if name.endswith("norm.weight"):
        v = norm_base + v / 2
    elif "embed_tokens" not in name:
        v = v / 4
    return torch.tensor(v.astype(np.float32))


def run(name, model_type, changes):
    written = dict(SHAPE, **changes, model_type=model_type)
    config = transformers.AutoConfig.for_model(model_type, **{k: v for k, v in written.items() if k != "model_type"})
    config._attn_implementation = "eager"  # the only one with soft-caps
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    tensors = {}
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            tensors[key] = list(parameter.shape)
            parameter.copy_(weight(key, parameter.shape, 0 if model_type.startswith("gemma") else 1))
        logits = model(torch.tensor([TOKENS])).logits[0].double().numpy()
    return dict(name=name, config=written, tensors=tensors,
                logits=[[float(f"{x:.8g}") for x in logits[p]] for p in POSITIONS])


def main():
    print(json.dumps(dict(made_with=f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
                          tokens=TOKENS, positions=POSITIONS,
                          models=[run(name, *spec) for name, spec in MODELS.items()]), indent=None,
                     separators=(",", ":")).replace('{"name"', '\n{"name"'))


if __name__ == "__main__":
    main()
