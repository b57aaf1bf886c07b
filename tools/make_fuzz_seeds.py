#!/usr/bin/env python3
"""Writes the seeds of the fuzzers of containers and tokenizers into tests/fuzz/corpus.

Each seed is a small file that shows the fuzzer one feature of a format; all are made here.
"""
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "corpus"
U8, I32, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 5, 4, 6, 7, 8, 9, 10
PACK = {U8: "<B", I32: "<i", I32: "<i", U32: "<I", F32: "<f", BOOL: "<B", U64: "<Q"}


def text(value):
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def element(kind, value):
    return text(value) if kind == STRING else struct.pack(PACK[kind], value)


def key(name, kind, value):
    if isinstance(value, list):
        items = b"".join(element(kind, v) for v in value)
        return text(name) + struct.pack("<IIQ", ARRAY, kind, len(value)) + items
    return text(name) + struct.pack("<I", kind) + element(kind, value)


def gguf(keys, tensors=(), version=3, alignment=32):
    """tensors: (name, dims, type, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    out += b"".join(key(*k) for k in keys)
    offset = 0
    for name, dims, kind, size in tensors:
        out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, offset)
        offset += -(-size // alignment) * alignment
    if tensors:
        out += b"\0" * (-len(out) % alignment) + b"\0" * offset
    return out


def model(arch, keys, tensors=(), **options):
    head = [("general.architecture", STRING, arch)]
    return gguf(head + [(f"{arch}.{name}", kind, value) for name, kind, value in keys], tensors,
                **options)


DENSE = [("block_count", U32, 2), ("embedding_length", U32, 16), ("context_length", U32, 64),
         ("attention.head_count", U32, 4), ("attention.head_count_kv", U32, 2)]
LATENT = [("block_count", U32, 2), ("embedding_length", U32, 16), ("attention.head_count", U32, 4),
          ("attention.head_count_kv", U32, 1), ("attention.q_lora_rank", U32, 8),
          ("attention.kv_lora_rank", U32, 16), ("attention.key_length", U32, 24),
          ("attention.value_length", U32, 16), ("attention.key_length_mla", U32, 12),
          ("attention.value_length_mla", U32, 4), ("rope.dimension_count", U32, 8)]
HYBRID = [("block_count", U32, 4), ("embedding_length", U32, 16), ("attention.head_count", U32, 4),
          ("attention.key_length", U32, 8), ("attention.value_length", U32, 8),
          ("ssm.conv_kernel", U32, 4), ("ssm.inner_size", U32, 32), ("ssm.state_size", U32, 8),
          ("ssm.time_step_rank", U32, 4), ("ssm.group_count", U32, 2)]


def gguf_seeds():
    yield "v2", gguf([("a", U8, 1), ("b", F32, 0.5), ("c", BOOL, 1), ("d", U64, 7)], version=2)
    yield "tokens", gguf([("tokenizer.ggml.tokens", STRING, ["<s>", "a", ""]),
                          ("tokenizer.ggml.scores", F32, [0.0, -1.0])])
    yield "llama-vocabulary", gguf([
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", STRING, ["<unk>", "<s>", "</s>", "a", "b", "ab", "<0xC3>"]),
        ("tokenizer.ggml.scores", F32, [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, 0.0]),
        ("tokenizer.ggml.token_type", I32, [2, 3, 3, 1, 1, 1, 6]),
        ("tokenizer.ggml.add_bos_token", BOOL, 1), ("tokenizer.ggml.bos_token_id", U32, 1)])
    yield "gpt2-vocabulary", gguf([
        ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "qwen2"),
        ("tokenizer.ggml.tokens", STRING, ["a", "b", "ab", "\u0120", "<|im_end|>"]),
        ("tokenizer.ggml.merges", STRING, ["a b"]),
        ("tokenizer.ggml.token_type", I32, [1, 1, 1, 1, 3])])
    yield "aligned", gguf([("general.alignment", U32, 64)],
                          [("a", (8,), 0, 32), ("b", (32, 2), 8, 68)], alignment=64)
    yield "llama", model("llama", DENSE, [("blk.0.attn_k.weight", (16, 8), 0, 512),
                                          ("blk.0.attn_v.weight", (16, 8), 1, 256),
                                          ("blk.1.attn_qkv.weight", (16, 32), 30, 1024)])
    yield "gemma3", model("gemma3", DENSE + [("attention.sliding_window", U32, 8)])
    yield "window-pattern", model("gemma4", DENSE + [
        ("attention.sliding_window", U32, 8),
        ("attention.sliding_window_pattern", BOOL, [1, 0]),
        ("attention.key_length", U32, 8), ("attention.value_length", U32, 8),
        ("attention.key_length_swa", U32, 4), ("attention.value_length_swa", U32, 4),
        ("attention.shared_kv_layers", U32, 1)])
    yield "deepseek2", model("deepseek2", LATENT + [("nextn_predict_layers", U32, 1)],
                             [("blk.0.attn_kv_a_mqa.weight", (16, 24), 0, 1536)])
    yield "deepseek32", model("deepseek32", LATENT + [
        ("attention.indexer.head_count", U32, 2), ("attention.indexer.key_length", U32, 8),
        ("attention.indexer.top_k", U32, 4)])
    yield "deepseek4", model("deepseek4", LATENT + [
        ("attention.compress_ratios", U32, [0, 4]), ("attention.sliding_window", U32, 4),
        ("attention.indexer.head_count", U32, 2), ("attention.indexer.key_length", U32, 8),
        ("attention.indexer.top_k", U32, 4)])
    yield "qwen3next", model("qwen3next", HYBRID + [("attention.head_count_kv", U32, 2),
                                                    ("full_attention_interval", U32, 4)])
    yield "nemotron_h", model("nemotron_h", HYBRID + [
        ("attention.head_count_kv", U32, [0, 2, 0, 0]),
        ("feed_forward_length", U32, [0, 0, 8, 0])])
    yield "kimi-linear", model("kimi-linear", LATENT[:3] + LATENT[4:] + [
        ("attention.head_count_kv", U32, [0, 1]), ("ssm.conv_kernel", U32, 4),
        ("kda.head_dim", U32, 8)])
    yield "mamba2", model("mamba2", HYBRID)
    yield "lfm2", model("lfm2", DENSE[:4] + [("attention.head_count_kv", U32, [0, 2]),
                                             ("shortconv.l_cache", U32, 3)])
    yield "unknown", model("novel", DENSE)


def safetensors(header, size):
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + b"\0" * size


def tensor(kind, shape, start, end):
    return {"dtype": kind, "shape": shape, "data_offsets": [start, end]}


def safetensors_seeds():
    yield "empty", safetensors({}, 0)
    yield "metadata", safetensors({"__metadata__": {"format": "pt"}, "a": tensor("F32", [], 0, 4)}, 4)
    yield "types", safetensors({
        "a": tensor("BF16", [2, 3], 0, 12), "b": tensor("F8_E4M3", [4], 12, 16),
        "c": tensor("F4", [2, 2], 16, 18), "d": tensor("F6_E2M3", [4], 18, 21),
        "e": tensor("U8", [0, 5], 21, 21)}, 21)
    yield "unordered", safetensors({"b": tensor("I64", [1], 2, 10), "a": tensor("F16", [1], 0, 2)}, 10)
    yield "escapes", safetensors(b'{"\\u0061\\n\\ud83d\\ude00":{"shape":[1],"data_offsets":[0,1],'
                                 b'"dtype":"BOOL"}}   ', 1)


LETTERS = ["a", "b", "c", "ab", "abc", "\u2581", "\u2581a"]
MERGES = ["a b", "ab c", "\u2581 a"]


def tokenizer_json(**parts):
    model = {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True,
             "vocab": {token: i for i, token in enumerate(["<unk>", "<0xC3>", "<0xA9>"] + LETTERS)},
             "merges": MERGES, **parts.pop("model", {})}
    return json.dumps({"added_tokens": [{"id": 10, "content": "<s>", "special": True, "rstrip": True},
                                        {"id": 12, "content": "</s>", "special": False}],
                       "model": model, **parts}).encode()


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def tokenizer_json_seeds():
    yield "plain", tokenizer_json()
    yield "marked", tokenizer_json(
        normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "\u2581"},
                            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}),
        decoder=sequence("decoders", {"type": "Replace", "pattern": {"String": "\u2581"},
                                      "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                         {"type": "Strip", "content": " ", "start": 1, "stop": 0}))
    yield "bytes", tokenizer_json(
        normalizer={"type": "NFC"},
        pre_tokenizer=sequence(
            "pretokenizers",
            {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}|\\s+(?!\\S)|[^\\s]+"},
             "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}),
        post_processor={"type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}]},
        decoder={"type": "ByteLevel"}, model={"ignore_merges": True})
    yield "pairs", tokenizer_json(
        pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
                       "split": True},
        decoder={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"},
        model={"merges": [merge.split(" ") for merge in MERGES]})
    yield "steps", tokenizer_json(pre_tokenizer=sequence(
        "pretokenizers", {"type": "Digits", "individual_digits": True},
        {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Whitespace"}))


def wire(number, kind, payload):
    return bytes([number << 3 | kind]) + payload


def message(number, content):
    return wire(number, 2, bytes([len(content)]) + content)


def sentencepiece(pieces, trainer=b"", normalizer=b""):
    out = b""
    for token, score, kind in pieces:
        out += message(1, message(1, token.encode()) + wire(2, 5, struct.pack("<f", score)) +
                       wire(3, 0, bytes([kind])))
    return out + message(2, wire(3, 0, b"\2") + trainer) + message(3, normalizer)


def sentencepiece_seeds():
    special = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    pieces = special + [(token, -float(i), 1) for i, token in enumerate(LETTERS)]
    yield "plain", sentencepiece(pieces)
    # Numbers of tokens beyond 15 fields take two bytes: byte_fallback is field 35.
    yield "bytes", sentencepiece(pieces + [("<0xC3>", 0.0, 6), ("<0xA9>", 0.0, 6)],
                                 trainer=b"\x98\x02\x01")
    yield "user", sentencepiece(pieces + [("  ", 0.0, 4), ("old", 0.0, 5)],
                                normalizer=wire(3, 0, b"\0") + wire(4, 0, b"\0"))


def encode_seeds():
    yield "words", b"ab aab  abab\r\n\n 12345 a!? \t"
    yield "letters", "\u00e9\u4e00\U0001f600\u2581 a\u0301\u3000".encode()
    yield "special", b"<s>a</s> <0x0A>"
    yield "broken", b"a\xff\xe2\x96b\xed\xa0\x80\xf0\x9f"
    yield "run", b"a" * 300


def main():
    for folder, seeds in (("encode", encode_seeds()), ("gguf", gguf_seeds()),
                          ("safetensors", safetensors_seeds()),
                          ("sentencepiece", sentencepiece_seeds()),
                          ("tokenizer_json", tokenizer_json_seeds())):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
        for name, content in seeds:
            (CORPUS / folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
