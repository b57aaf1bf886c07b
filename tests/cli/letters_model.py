#!/usr/bin/env python3
"""Writes a model whose text is known without running it: after a letter it says the next one.

    letters_model.py OUT.gguf [--without-bos] [--without-byte]

A GGUF of the architecture llama with a vocabulary of its own. Embeddings are unit vectors, one a
token; attention and feed-forward have weights of zero, so that the last norm turns the unit vector
of a token into one of length sqrt(width). The head's row of the following token has that number of
logits which gives it a probability of one half: <s> is followed by "a", "a" by "b", ... and "z" by
</s>; every other token by "a".
"""
import array
import math
import struct
import sys

WIDTH, LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, CONTEXT = 288, 2, 9, 3, 32, 32, 4096
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
LETTERS = [chr(ord("a") + i) for i in range(26)]


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name, kind, value):
    pack = {U32: "<I", F32: "<f", BOOL: "<B", I32: "<i"}
    one = lambda v: text(v) if kind == STRING else struct.pack(pack[kind], v)
    if isinstance(value, list):
        head = struct.pack("<IIQ", ARRAY, kind, len(value))
        return text(name) + head + b"".join(map(one, value))
    return text(name) + struct.pack("<I", kind) + one(value)


def vocabulary(arguments):
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + LETTERS + ["\u2581"]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * 27
    if "--without-byte" in arguments:
        kinds[3 + 0xC3] = NORMAL
    bos = 0xFFFFFFFF if "--without-bos" in arguments else 1
    keys = [("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.tokens", STRING, tokens),
            ("tokenizer.ggml.scores", F32, [0.0] * len(tokens)),
            ("tokenizer.ggml.token_type", I32, kinds), ("tokenizer.ggml.bos_token_id", U32, bos),
            ("tokenizer.ggml.eos_token_id", U32, 2),
            ("tokenizer.ggml.add_space_prefix", BOOL, 0)]
    return tokens, keys


def unit_rows(columns, value, count):
    """Row i has `value` in column columns[i]; without a column it is empty."""
    rows = array.array("f", bytes(4 * WIDTH * count))
    for row, column in columns:
        rows[row * WIDTH + column] = value
    return rows.tobytes()


def tensors(tokens):
    following = {i: tokens.index("a") for i in range(len(tokens))}
    for letter, after in zip(LETTERS, LETTERS[1:] + ["</s>"]):
        following[tokens.index(letter)] = tokens.index(after)
    logit = math.log(len(tokens) - 1)  # beside zeros for all others: a probability of one half
    ones = array.array("f", [1.0] * WIDTH).tobytes()
    zeros = lambda rows, columns: bytes(4 * rows * columns)
    yield "token_embd.weight", (WIDTH, len(tokens)), unit_rows(
        [(i, i) for i in range(len(tokens))], 1.0, len(tokens))
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", (WIDTH,), ones
        yield block + "attn_q.weight", (WIDTH, HEADS * HEAD_DIM), zeros(WIDTH, HEADS * HEAD_DIM)
        for name in ("attn_k", "attn_v"):
            yield f"{block}{name}.weight", (WIDTH, KV_HEADS * HEAD_DIM), zeros(
                WIDTH, KV_HEADS * HEAD_DIM)
        yield block + "attn_output.weight", (HEADS * HEAD_DIM, WIDTH), zeros(WIDTH, WIDTH)
        yield block + "ffn_norm.weight", (WIDTH,), ones
        for name in ("ffn_gate", "ffn_up"):
            yield f"{block}{name}.weight", (WIDTH, HIDDEN), zeros(WIDTH, HIDDEN)
        yield block + "ffn_down.weight", (HIDDEN, WIDTH), zeros(HIDDEN, WIDTH)
    yield "output_norm.weight", (WIDTH,), ones
    yield "output.weight", (WIDTH, len(tokens)), unit_rows(
        [(after, token) for token, after in following.items()], logit / math.sqrt(WIDTH),
        len(tokens))


def main(path, *arguments):
    tokens, vocabulary_keys = vocabulary(arguments)
    keys = [("general.architecture", STRING, "llama"), ("general.name", STRING, "letters"),
            ("llama.block_count", U32, LAYERS), ("llama.context_length", U32, CONTEXT),
            ("llama.embedding_length", U32, WIDTH), ("llama.feed_forward_length", U32, HIDDEN),
            ("llama.attention.head_count", U32, HEADS),
            ("llama.attention.head_count_kv", U32, KV_HEADS),
            ("llama.attention.key_length", U32, HEAD_DIM),
            ("llama.attention.value_length", U32, HEAD_DIM),
            ("llama.rope.dimension_count", U32, HEAD_DIM),
            ("llama.attention.layer_norm_rms_epsilon", F32, 1e-12), *vocabulary_keys]
    records, content = b"", b""
    all_tensors = list(tensors(tokens))
    for name, dims, weights in all_tensors:
        records += text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        records += struct.pack("<IQ", 0, len(content))
        content += weights + b"\0" * (-len(weights) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(keys))
    head += b"".join(key(*k) for k in keys) + records
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + content)


if __name__ == "__main__":
    main(*sys.argv[1:])
