"""Blocks of every quantised weight format and the numbers that they stand for, by the gguf package.

    python make_weight_blocks.py > weight_blocks.txt       (needs gguf and numpy; made with gguf 0.19)

A line is: type, bytes of two blocks in hexadecimal, their numbers in C's hexadecimal notation.
"""

import gguf
import numpy as np

TYPES = ["Q8_0", "Q5_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"]
# Where the blocks' f16 scales lie; random bits there would be infinities or not numbers.
HALVES = {"Q8_0": [0], "Q5_0": [0], "Q4_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def main():
    random = np.random.default_rng(20261130)
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        _, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (2, size), dtype=np.uint8)
        for i in range(2):
            for at in HALVES[name]:
                scale = np.float16(random.normal() * 0.01)
                blocks[i, at:at + 2] = np.frombuffer(scale.tobytes(), np.uint8)
        numbers = gguf.quants.dequantize(blocks.reshape(1, -1), kind).ravel()
        print(name, blocks.tobytes().hex(), *(float(x).hex() for x in numbers))


if __name__ == "__main__":
    main()
