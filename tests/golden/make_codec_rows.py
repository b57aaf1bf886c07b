#!/usr/bin/env python3
"""Writes codec_rows.txt: rows, their encoded bytes and the numbers these stand for.

Everything comes from other implementations than Kvarto's: the gguf package for ggml's formats,
ml_dtypes for 8- and 4-bit floating point, numpy for the rest. With --ggml-library, a shared object
of ggml's own ggml-quants.c, the bytes of its quantize_row_*_ref are compared too.

    python3 -m venv venv && venv/bin/pip install gguf numpy ml_dtypes
    venv/bin/python tests/golden/make_codec_rows.py > tests/golden/codec_rows.txt
"""

import argparse
import ctypes
import os

import gguf
import ml_dtypes
import numpy as np

F32 = np.float32
QUANTS = gguf.GGMLQuantizationType
IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], F32)


def inputs():
    """Named rows; every one is finite."""
    random = np.random.default_rng(20260101)
    normal = random.standard_normal(64).astype(F32)
    yield "normal", normal
    outlier = normal.copy()
    outlier[5::13] += np.array([30, -100, 300, 30, -100], F32)[: len(outlier[5::13])]
    yield "outlier", outlier
    yield "small", normal * F32(1e-6)
    yield "large", normal * F32(1e4)
    # Quarters: halfway between two numbers in many formats.
    yield "ties", (np.arange(64, dtype=F32) - 31) * F32(0.25)
    edges = np.zeros(64, F32)
    edges[2], edges[3], edges[35], edges[40], edges[41] = 0.5, -0.0, -448.0, 448.0, 464.0
    yield "edges", edges
    yield "zeros", np.zeros(64, F32)
    yield "wide", random.standard_normal(192).astype(F32) * np.repeat(np.array([1, 20, 0.05], F32), 64)


def iq4_nl(x):
    """ggml's rule without an importance matrix, in its order of operations."""
    out = []
    for block in x.reshape(-1, 32):
        largest = block[np.argmax(np.abs(block))]
        codes, scale = np.zeros(32, np.uint8), F32(0)
        if abs(largest) >= F32(1e-15):
            inverse = F32(1) / (largest / IQ4_NL[0])
            sum_qx, sum_qq = F32(0), F32(0)
            for i, value in enumerate(block):
                y = F32(inverse * value)
                # The nearer value; halfway, the larger.
                code = min(range(16), key=lambda k: (abs(float(y) - float(IQ4_NL[k])), -k))
                codes[i] = code
                weighted = F32(F32(value * value) * IQ4_NL[code])
                sum_qx = F32(sum_qx + F32(weighted * value))
                sum_qq = F32(sum_qq + F32(weighted * IQ4_NL[code]))
            scale = sum_qx / sum_qq if sum_qq > 0 else F32(0)
        out.append(scale.astype(np.float16).tobytes() + (codes[:16] | codes[16:] << 4).astype(np.uint8).tobytes())
    return b"".join(out)


def ggml(name):
    quant = getattr(QUANTS, name.upper())

    def rows(x):
        encoded = iq4_nl(x) if name == "iq4_nl" else gguf.quants.quantize(x, quant).tobytes()
        with np.errstate(invalid="ignore"):  # a scale beyond f16 times 0
            return encoded, gguf.quants.dequantize(np.frombuffer(encoded, np.uint8), quant).astype(F32)

    return rows


def integer(bits, group):
    last = F32(2 ** (bits - 1) - 1)

    def rows(x):
        codes, scales, decoded = [], [], []
        for first in range(0, len(x), group or len(x)):
            part = x[first : first + (group or len(x))]
            scale = np.abs(part).max() / last
            q = np.clip(np.rint(part / scale), -last, last) if scale > 0 else np.zeros_like(part)
            codes.append(q.astype(np.int32))
            scales.append(scale)
            decoded.append(q.astype(F32) * scale)
        q = np.concatenate(codes)
        packed = q.astype(np.int8) if bits == 8 else ((q[0::2] + 8) | (q[1::2] + 8) << 4).astype(np.uint8)
        return packed.tobytes() + np.array(scales, F32).tobytes(), np.concatenate(decoded)

    return rows


def plain_fp8(kind):
    def rows(x):
        largest = F32(ml_dtypes.finfo(kind).max)
        code = np.clip(x, -largest, largest).astype(kind)
        return code.tobytes(), code.astype(F32)

    return rows


def fp4_pairs(values):
    code = np.clip(values, -6, 6).astype(ml_dtypes.float4_e2m1fn)
    bits = code.view(np.uint8) & 15
    return (bits[0::2] | bits[1::2] << 4).astype(np.uint8), code.astype(F32)


def nvfp4(x):
    groups = x.reshape(-1, 16)
    scale = np.clip(np.abs(groups).max(axis=1) / F32(6), 0, 448).astype(ml_dtypes.float8_e4m3fn)
    value = scale.astype(F32)[:, None]
    scaled = np.where(value > 0, groups / np.where(value > 0, value, 1), F32(0))
    pairs, elements = fp4_pairs(scaled.astype(F32).reshape(-1))
    return pairs.tobytes() + scale.tobytes(), (elements.reshape(-1, 16) * value).reshape(-1)


def mxfp4(x):
    groups = x.reshape(-1, 32)
    # frexp's exponent is one above floor(log2); 2 is the exponent of the largest element, 6.
    exponent = np.frexp(np.abs(groups).max(axis=1))[1] - 1 - 2
    exponent = np.where(np.abs(groups).max(axis=1) > 0, exponent, -127)
    value = np.ldexp(1.0, exponent)[:, None]
    pairs, elements = fp4_pairs((groups / value).astype(F32).reshape(-1))
    return pairs.tobytes() + (exponent + 127).astype(np.uint8).tobytes(), (
        (elements.reshape(-1, 32) * value).reshape(-1).astype(F32))


def scaled_fp8(group, is_scale_f32):
    def rows(x):
        codes, scales, decoded = [], [], []
        for first in range(0, len(x), group):
            part = x[first : first + group]
            fraction, exponent = np.frexp(max(np.abs(part).max() / F32(448), F32(1e-4)))
            exponent -= fraction == 0.5  # rounded up to a power of two
            scale = F32(np.ldexp(1.0, exponent))
            code = (part / scale).astype(ml_dtypes.float8_e4m3fn)
            codes.append(code)
            scales.append(scale.tobytes() if is_scale_f32 else bytes([exponent + 127]))
            decoded.append(code.astype(F32) * scale)
        return np.concatenate(codes).tobytes() + b"".join(scales), np.concatenate(decoded)

    return rows


CODECS = {
    "fp8_e4m3": plain_fp8(ml_dtypes.float8_e4m3fn),
    "fp8_e5m2": plain_fp8(ml_dtypes.float8_e5m2),
    **{name: ggml(name) for name in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")},
    "int8": integer(8, None),
    "int4": integer(4, 128),
    "nvfp4": nvfp4,
    "mxfp4": mxfp4,
    "fp8_scaled_128": scaled_fp8(128, True),
    "fp8_scaled_64": scaled_fp8(64, False),
    "fp8_scaled_32": scaled_fp8(32, False),
}


def check_with_ggml(library, name, x, encoded):
    quantise = getattr(library, f"quantize_row_{name}_ref", None)
    if quantise is None:
        return
    x = np.ascontiguousarray(x)
    out = np.zeros(len(encoded), np.uint8)
    quantise(x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(len(x)))
    assert out.tobytes() == encoded, f"{name}: ggml's bytes differ"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ggml-library")
    path = parser.parse_args().ggml_library
    library = ctypes.CDLL(path, mode=os.RTLD_LAZY) if path else None
    print("# Made by make_codec_rows.py. input NAME f32...; row CODEC INPUT bytes f32...; all in hexadecimal.")
    for label, x in inputs():
        print("input", label, x.astype("<f4").tobytes().hex())
        for name, rows in CODECS.items():
            encoded, decoded = rows(x)
            if library and label != "zeros":  # iq4_nl of zeros: ggml leaves the codes as they were
                check_with_ggml(library, name, x, encoded)
            print("row", name, label, encoded.hex(), decoded.astype("<f4").tobytes().hex())


if __name__ == "__main__":
    main()
