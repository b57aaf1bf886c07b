#!/usr/bin/env python3
"""Writes latent_attention.txt: latent and sparse attention of tiny models with random weights.

The attention modules are those of Hugging Face transformers (eager, double precision save where a
module itself casts to f32): deepseek_v2, deepseek_v3 with YaRN, deepseek_v32, and two layers of
glm_moe_dsa of which the second reuses the selection of the first. What goes into attention after
the projections, and what comes out before the last one, is taken down; CI needs none of this.

The case index_fp8 is not of transformers, whose indexer scores unquantised keys: it is the
arithmetic of DeepSeek's inference code (quantise to e4m3 with a scale rounded up to a power of two,
sum the weighted ReLU of dot products), written with numpy and ml_dtypes.

    python3 -m venv venv && venv/bin/pip install torch transformers==5.24.0 numpy ml_dtypes
    venv/bin/python tests/golden/make_latent_attention.py > tests/golden/latent_attention.txt
"""

import importlib
import sys

import ml_dtypes
import numpy as np
import torch
import transformers

TOKENS = 40
QUERIES = 6  # the last tokens of the sequence
SHAPE = dict(num_attention_heads=4, num_key_value_heads=4, hidden_size=48, kv_lora_rank=24,
             qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, num_hidden_layers=2,
             max_position_embeddings=256, attn_implementation="eager")
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=40.0, mscale=1.0, mscale_all_dim=1.0,
            original_max_position_embeddings=64, beta_fast=32, beta_slow=1)


class Recorder:
    """Takes down what one attention module of transformers sees."""

    def __init__(self, module, attention):
        self.module, self.attention = module, attention
        self.seen = {}
        expand = attention.expand_kv

        def expand_kv(latent, rope):
            self.seen["latent"], self.seen["rope"] = latent[0, 0], rope[0, 0]
            return expand(latent, rope)

        attention.expand_kv = expand_kv
        attend = module.eager_attention_forward

        def eager(this, query, key, value, mask, **rest):
            out, weights = attend(this, query, key, value, mask, **rest)
            self.seen["q"], self.seen["out"] = query[0].transpose(0, 1), out[0]
            self.seen["scale"] = this.scaling
            return out, weights

        module.eager_attention_forward = eager
        self.restore = lambda: setattr(module, "eager_attention_forward", attend)
        if getattr(attention, "indexer", None) is not None:
            self.follow_indexer(attention.indexer)

    def follow_indexer(self, indexer):
        class Keys:
            """Stands in for the cache of index keys."""

            def update_indexer(_, keys, layer):
                self.seen["index_k"] = keys[0]
                return keys

        forward = indexer.forward

        def with_keys(*args, cache=None, **rest):
            self.seen["index_q"], matmul = None, torch.matmul

            def first_product(a, b):
                if self.seen["index_q"] is None:
                    self.seen["index_q"] = a[0]
                return matmul(a, b)

            torch.matmul = first_product
            try:
                selected = forward(*args, cache=Keys(), **rest)
            finally:
                torch.matmul = matmul
            self.seen["selected"] = selected[0]
            return selected

        indexer.forward = with_keys
        indexer.weights_proj.register_forward_hook(
            lambda _, inputs, output: self.seen.__setitem__(
                "index_w", output[0] * indexer.n_heads**-0.5 * indexer.softmax_scale))


def randomise(layer, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, weight in layer.named_parameters():
        noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        spread = weight.shape[-1] ** -0.5 if weight.dim() > 1 else 0.2
        weight.data = noise * spread * (1.6 if weight.dim() > 1 else 1) + (weight.dim() == 1)


def run_layer(kind, config, layer, seed, previous=None):
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    prefix = {"deepseek_v2": "DeepseekV2", "deepseek_v3": "DeepseekV3",
              "deepseek_v32": "DeepseekV32", "glm_moe_dsa": "GlmMoeDsa"}[kind]
    attention = getattr(module, prefix + "Attention")(config, layer).double()
    randomise(attention, seed)
    recorder = Recorder(module, attention)
    generator = torch.Generator().manual_seed(seed + 1)
    hidden = torch.randn(1, TOKENS, config.hidden_size, generator=generator, dtype=torch.float64)
    positions = torch.arange(TOKENS)[None]
    rope = getattr(module, prefix + "RotaryEmbedding")(config)
    angles = rope(hidden, position_ids=positions)
    mask = torch.full((1, 1, TOKENS, TOKENS), -torch.inf, dtype=torch.float64).triu(1)
    rest = {} if previous is None else {"prev_topk_indices": previous}
    with torch.no_grad():
        attention(hidden, position_embeddings=angles, attention_mask=mask, **rest)
    recorder.restore()
    if previous is not None:
        recorder.seen["selected"] = previous[0]
    return attention, recorder.seen


def check_margin(case, selected):
    """A selection that hangs on the last digits would test nothing but luck."""
    q, k, w = (case[name].double().numpy() for name in ("index_q", "index_k", "index_w"))
    scores = np.einsum("th,ths->ts", w, np.maximum(np.einsum("thd,sd->ths", q, k), 0))
    for t, chosen in enumerate(selected):
        if len(chosen) == t + 1:
            continue
        visible = scores[t, : t + 1]
        least = visible[chosen].min()
        best_other = np.delete(visible, chosen).max()
        assert least - best_other > 1e-4 * np.abs(visible).max(), (t, least, best_other)


def show(name, values):
    print(name, np.ascontiguousarray(values, dtype="<f4").tobytes().hex())


def write_case(name, attention, seen, top_k=0):
    heads, nope, v_dim = attention.num_heads, attention.qk_nope_head_dim, attention.v_head_dim
    indexer = getattr(attention, "indexer", None)
    index = (indexer.n_heads, indexer.head_dim) if indexer is not None else (0, 0)
    print("case", name, "heads", heads, "nope", nope, "rope", attention.qk_rope_head_dim,
          "latent", attention.kv_lora_rank, "v", v_dim, "tokens", TOKENS, "queries", QUERIES,
          "index_heads", index[0], "index_dim", index[1], "top_k", top_k)
    last = slice(TOKENS - QUERIES, TOKENS)
    expansion = attention.kv_b_proj.weight.detach().view(heads, nope + v_dim, -1)
    show("scale", [seen["scale"]])
    show("q_nope", seen["q"][last, :, :nope])
    show("q_rope", seen["q"][last, :, nope:])
    show("latent", seen["latent"])
    show("rope", seen["rope"])
    show("w_uk", expansion[:, :nope])
    show("w_uv", expansion[:, nope:])
    if indexer is not None:
        show("index_q", seen["index_q"][last])
        show("index_k", seen["index_k"])
        show("index_w", seen["index_w"][last])
    if "selected" in seen:
        chosen = [sorted(i for i in row.tolist() if i <= t)
                  for t, row in enumerate(seen["selected"])]
        if indexer is not None:
            check_margin(seen, chosen)
        for row in chosen[last]:
            print("selected", *row)
    show("out", seen["out"][last])


def config_of(name, **more):
    return getattr(transformers, name)(**(SHAPE | more))


def write_models():
    config = config_of("DeepseekV2Config", q_lora_rank=None)
    write_case("deepseek_v2", *run_layer("deepseek_v2", config, 0, 20260201))
    config = config_of("DeepseekV3Config", q_lora_rank=20, rope_parameters=YARN)
    write_case("deepseek_v3", *run_layer("deepseek_v3", config, 0, 20260202))
    sparse = dict(q_lora_rank=20, index_topk=9, index_n_heads=6, index_head_dim=16)
    config = config_of("DeepseekV32Config", **sparse)
    write_case("deepseek_v32", *run_layer("deepseek_v32", config, 0, 20260203), top_k=9)
    config = config_of("GlmMoeDsaConfig", indexer_types=["full", "shared"], **sparse)
    attention, seen = run_layer("glm_moe_dsa", config, 0, 20260204)
    write_case("glm_moe_dsa", attention, seen, top_k=9)
    attention, seen = run_layer("glm_moe_dsa", config, 1, 20260205, seen["selected"][None])
    write_case("glm_moe_dsa_shared", attention, seen, top_k=9)


def write_index_fp8():
    heads, dim, tokens, top_k = 8, 128, 24, 7
    random = np.random.default_rng(20260206)
    q = random.standard_normal((heads, dim)).astype(np.float32)
    k = (random.standard_normal((tokens, dim)) * random.lognormal(0, 1, (tokens, 1)))
    k = k.astype(np.float32)
    w = (random.standard_normal(heads) * (heads * dim) ** -0.5).astype(np.float32)

    def quantised(rows):
        largest = np.maximum(np.abs(rows).max(-1, keepdims=True), np.float32(1e-4))
        scale = np.exp2(np.ceil(np.log2(largest.astype(np.float64) / 448)))
        codes = (rows / scale).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
        return codes.astype(np.float64) * scale

    def scores_of(queries):
        return w.astype(np.float64) @ np.maximum(queries @ quantised(k).T, 0)

    print("case index_fp8 heads 0 nope 0 rope 0 latent 0 v 0 tokens", tokens, "queries 1",
          "index_heads", heads, "index_dim", dim, "top_k", top_k)
    show("index_q", q)
    show("index_k", k)
    show("index_w", w)
    for name, queries in (("scores", q.astype(np.float64)), ("scores_q8", quantised(q))):
        scores = scores_of(queries)
        show(name, scores)
        order = np.sort(scores)
        assert order[-top_k] - order[-top_k - 1] > 1e-3 * np.abs(scores).max()
        print("selected", *sorted(np.argsort(-scores)[:top_k].tolist()))


def main():
    print("# Made by make_latent_attention.py with transformers", transformers.__version__,
          "and torch", torch.__version__.split("+")[0] + ".")
    print("# case NAME (key value)...; then arrays of f32 in hexadecimal, and rows selected.")
    write_models()
    write_index_fp8()


if __name__ == "__main__":
    sys.exit(main())
