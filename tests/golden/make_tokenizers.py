#!/usr/bin/env python3
"""Writes tests/golden/tokenizers.json: small tokenizers and the tokens that their own libraries give.

    pip install tokenizers sentencepiece
    python3 tests/golden/make_tokenizers.py

The tokenizers are trained here, on the text below, by the libraries of Hugging Face and of
SentencePiece, in the forms in which published models have them. Tests compare what Kvarto makes of
the files with what those libraries make of them.
"""
import base64
import io
import json
import pathlib

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

TEXT = [
    "The cache keeps a row for every token, and every row has a birth and a death.",
    "A window of eight tokens forgets the ninth; a chunk forgets them all at once.",
    "Rows of keys and rows of values lie in blocks, blocks lie in a pool, and the pool counts.",
    "Don't read what wasn't chosen: it's poisoned, and they'll notice. We've tried; I'm sure.",
    "1 token, 12 tokens, 123 tokens, 1234 tokens: 4096 x 128 x 2 bytes are 1048576 bytes.",
    "def plan(model, context=32768):\n    return sum(stream.bytes(context) for stream in model)\n",
    "Größe, Länge, Höhe, façade, naïve, œuvre, Ångström: letters that take two bytes each.",
    "один два три четыре пять, 一 二 三 四 五, ひとつ ふたつ みっつ, 하나 둘 셋",
] * 4

CASES = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\t\n", " \n ", "a", " a", "a ", "  a  b   c ",
    "The cache keeps a row", " the Cache KEEPS", "don't DON'T we'Ve 's 'S '\u017f", "it'll've",
    "1", "12", "123", "1234", "12345 67", "3.14159", "x=4096*128", "\u00b2\u00bd\u0663\u0664",
    "def f(x):\n    return x\n\n\n    # end\r\n\r\n", "a\r\nb\rc", "tab\tand  spaces   \n  x",
    "Größe façade Ångström", "A\u030angstro\u0308m e\u0301", "\ufb01 \u2126 \uac00 \u1100\u1161",
    "один 一二三 ひとつ 하나", "\U0001f680\U0001f636\u200d\U0001f32b\ufe0f ok", "\u00a0x\u2003y\u3000z",
    "\u180ex \u200bx \u0085x", "!!! ... ??? --- === ((()))", "path/to/file_name-1.txt#L10",
    "<s>", "</s> a <s>b", "<|end|>", "a<|end|>b", "<unk>", "\u2581", "a\u2581b", "<0x0A>",
    "word " * 20, "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\u0000\u0001\u007f", "\uffff\U0010ffff",
]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def train(tokenizer, size, special, alphabet=()):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(special),
                                  initial_alphabet=list(alphabet), show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def template(tokenizer, bos):
    return processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B",
                                         special_tokens=[(bos, tokenizer.token_to_id(bos))])


def byte_level(name, pattern, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 420, [], pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<|end|>", rstrip=True, special=True)])
    if name == "llama3":
        tokenizer.post_processor = template(tokenizer, "<s>")
    return name, tokenizer


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 400, ["</s>"], pre_tokenizers.ByteLevel.alphabet())
    return "gpt2-prefix", tokenizer


def with_bytes(name, normalizer, pre_tokenizer, decoder, added=()):
    """A vocabulary of letters that spells what it lacks in bytes, as Llama 2 and Gemma have it."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer, trained.pre_tokenizer = normalizer, pre_tokenizer
    train(trained, 300, SPECIAL)
    model = json.loads(trained.to_str())["model"]
    vocab = {token: i for i, token in enumerate(SPECIAL + BYTES)}
    for token in sorted(model["vocab"], key=model["vocab"].get):
        vocab.setdefault(token, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m) for m in model["merges"]],
                                     unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in added])
    tokenizer.post_processor = template(tokenizer, "<s>")
    return name, tokenizer


def json_tokenizers():
    yield byte_level("llama3", LLAMA3, ignore_merges=True)
    yield byte_level("qwen2", QWEN2, normalizer=normalizers.NFC())
    yield gpt2()
    joined = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    yield with_bytes("llama2", normalizers.Sequence([normalizers.Prepend("\u2581"),
                                                     normalizers.Replace(" ", "\u2581")]),
                     None, decoders.Sequence(joined + [decoders.Strip(" ", 1, 0)]))
    yield with_bytes("gemma", normalizers.Replace(" ", "\u2581"),
                     pre_tokenizers.Split(" ", "merged_with_previous"), decoders.Sequence(joined),
                     added=["\n\n", "\n\n\n", "<|end|>"])
    yield with_bytes("metaspace", None,
                     pre_tokenizers.Metaspace("\u2581", prepend_scheme="first", split=False),
                     decoders.Sequence(joined + [decoders.Strip(" ", 1, 0)]))


def json_case(tokenizer, text):
    # BOS is left out; special tokens in the text are parsed, as that library always does.
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)}


def sentencepiece_models():
    for name, options in (("bytes", {"byte_fallback": True, "remove_extra_whitespaces": False}),
                          ("collapsing", {"byte_fallback": True}),
                          ("unknown", {"add_dummy_prefix": False,
                                       "user_defined_symbols": ["<|end|>", "\n\n"]})):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT), model_writer=model, model_type="bpe", vocab_size=380,
            character_coverage=0.98, normalization_rule_name="identity", minloglevel=2, **options)
        yield name, model.getvalue()


def main():
    out = []
    for name, tokenizer in json_tokenizers():
        out.append({"name": name, "json": json.loads(tokenizer.to_str()),
                    "cases": [json_case(tokenizer, text) for text in CASES]})
    for name, model in sentencepiece_models():
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        # A NUL ends a text for that library, and a lone mark of a space is none.
        cases = [{"text": text, "ids": processor.encode(text)} for text in CASES
                 if "\0" not in text and text != "\u2581"]
        out.append({"name": name, "model": base64.b64encode(model).decode(), "cases": cases})
    path = pathlib.Path(__file__).with_name("tokenizers.json")
    lines = ",\n".join(json.dumps(entry) for entry in out)
    path.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
