// Attention over integer codes without instructions of its own: the definition of what the other
// sets compute, and what runs where they lack the dot products. Integer sums are exact here too, so
// all sets agree on them bit for bit.

#pragma once

namespace kvarto::KVARTO_ISA {

inline constexpr std::uint32_t kCodeRows = kKeyTileRows;
inline constexpr std::uint32_t kLineBytes = 64;  // four bytes of 16 rows, or of 16 elements

// Code `j` of four in a 32-bit word; of eight codes of 4 bits, `half` chooses four.
template <int kBits>
KVARTO_INLINE std::uint32_t code_at(const std::byte* word, std::uint32_t half, std::uint32_t j) {
  const auto byte = static_cast<std::uint32_t>(word[j]);
  if constexpr (kBits == 8) return byte;
  return (byte >> (4 * half)) & 15u;
}

// An operand of one or two signed bytes, `high` null for one.
KVARTO_INLINE std::uint32_t operand_at(const std::int8_t* low, const std::int8_t* high,
                                       std::uint32_t j) {
  const std::int32_t x = low[j] + (high == nullptr ? 0 : 256 * high[j]);
  return static_cast<std::uint32_t>(x);
}

// acc[lane] += sum over the four codes of each of 16 words. Unsigned: a part of a sum may leave 32
// bits, the whole does not.
template <int kBits>
KVARTO_INLINE void add_products(const std::byte* line, std::uint32_t half,
                                const std::uint32_t* operand, std::uint32_t* acc) {
  for (std::uint32_t lane = 0; lane < 16; ++lane) {
    std::uint32_t sum = acc[lane];
    for (std::uint32_t j = 0; j < 4; ++j) {
      sum += code_at<kBits>(line + lane * 4, half, j) * operand[j];
    }
    acc[lane] = sum;
  }
}

// One tile of rows by one query of a tile of `stride`.
template <int kBits, int kParts>
inline void score_codes_of(const CodeScoreArgs& args, std::uint32_t tile, std::uint32_t query,
                           std::uint32_t stride) {
  constexpr std::uint32_t kWords = 8 / kBits;  // of one line
  const std::byte* k = args.k + args.offsets[tile];
  const std::uint32_t num_words = args.dim / 4;
  const std::uint32_t num_groups = (args.dim + args.group_elements - 1) / args.group_elements;
  const std::int32_t* zeros = args.q + kParts * num_words * stride + query;
  float scale = 0;
  __builtin_memcpy(&scale, zeros + num_groups * stride, sizeof scale);
  float* out = args.scores + query * kChunkRows + tile * kCodeRows;
  std::uint32_t word = 0;
  for (std::uint32_t group = 0; group < num_groups; ++group) {
    const std::uint32_t after = word + args.group_elements / 4;
    const std::uint32_t end = after < num_words ? after : num_words;
    std::uint32_t acc[kCodeRows];
    for (std::uint32_t& sum : acc) sum = static_cast<std::uint32_t>(zeros[group * stride]);
    for (; word < end; ++word) {
      const auto* low =
          reinterpret_cast<const std::int8_t*>(args.q + std::size_t{word} * stride + query);
      const auto* high = kParts == 1 ? nullptr : low + std::size_t{num_words} * stride * 4;
      std::uint32_t operand[4];
      for (std::uint32_t j = 0; j < 4; ++j) operand[j] = operand_at(low, high, j);
      add_products<kBits>(k + std::size_t{word / kWords} * kLineBytes, word % kWords, operand, acc);
    }
    const float* row_scales = args.row_scales + group * kChunkRows + tile * kCodeRows;
    for (std::uint32_t row = 0; row < kCodeRows; ++row) {
      const float x = static_cast<float>(static_cast<std::int32_t>(acc[row])) * row_scales[row];
      out[row] = group == 0 ? x : out[row] + x;
    }
  }
  for (std::uint32_t row = 0; row < kCodeRows; ++row) out[row] *= scale;
}

template <int kBits, int kParts, int kStride>
void score_codes(const CodeScoreArgs& args) {
  for (std::uint32_t tile = 0; tile < args.count; ++tile) {
    for (std::uint32_t query = 0; query < kStride; ++query) {
      score_codes_of<kBits, kParts>(args, tile, query, kStride);
    }
  }
}

// 16 elements of one query.
template <int kBits>
inline void accumulate_column(const CodeAccumulateArgs& args, std::uint32_t element,
                              std::uint32_t query) {
  constexpr std::uint32_t kLines = kBits / 2;  // of one tile and column
  constexpr std::uint32_t kQuads = 8 / kBits;  // quads of rows in one line
  const std::size_t pair = std::size_t{element / args.group_elements} * args.num_queries + query;
  const std::int8_t* codes = args.codes + pair * 2 * kChunkRows;
  std::uint32_t acc[16];
  for (std::uint32_t& sum : acc) sum = static_cast<std::uint32_t>(args.zeros[pair]);
  for (std::uint32_t tile = 0; tile < args.count; ++tile) {
    const std::byte* v = args.v + args.offsets[tile] + element / 16 * kLines * kLineBytes;
    for (std::uint32_t quad = 0; quad < 4; ++quad) {
      const std::int8_t* low = codes + (4 * quad + tile) * 4;
      const std::int8_t* high = low + kChunkRows;
      std::uint32_t operand[4];
      for (std::uint32_t j = 0; j < 4; ++j) operand[j] = operand_at(low, high, j);
      add_products<kBits>(v + quad / kQuads * kLineBytes, quad % kQuads, operand, acc);
    }
  }
  const float scale = args.scales[pair];
  float* out = args.acc + std::size_t{query} * args.acc_stride + element;
  for (std::uint32_t i = 0; i < 16; ++i) {
    const auto sum = static_cast<float>(static_cast<std::int32_t>(acc[i]));
    out[i] = out[i] * args.correction[query] + sum * scale;
  }
}

template <int kBits, int kStride>
void accumulate_codes(const CodeAccumulateArgs& args) {
  for (std::uint32_t query = 0; query < kStride; ++query) {
    for (std::uint32_t d = 0; d < args.dim; d += 16) {
      accumulate_column<kBits>(args, args.first_element + d, query);
    }
  }
}

// The largest |x|; NaN if one is.
KVARTO_INLINE float largest_magnitude_of(const float* x, std::uint32_t count) {
  float largest = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const float magnitude = __builtin_fabsf(x[i]);
    largest = magnitude <= largest ? largest : magnitude;
    if (magnitude != magnitude) return magnitude;
  }
  return largest;
}

// The nearest integer of a number of at most kOperandMax16, ties to even; 0 for NaN.
KVARTO_INLINE std::int32_t nearest_operand(float x) {
  constexpr float kMagic = 0x1.8p23f;  // its last place is 1
  const float sum = x + kMagic;
  return x == x ? static_cast<std::int32_t>(sum - kMagic) : 0;
}

struct OperandUnit {
  float per_unit;  // operand = x * per_unit
  float value;     // of one operand
};
// Below the normal numbers the quotient overflows: nothing of weight is lost there.
KVARTO_INLINE OperandUnit operand_unit(float largest, std::uint32_t parts) {
  const float top = static_cast<float>(parts == 2 ? kOperandMax16 : kOperandMax8);
  return {largest < 0x1p-100f ? 0.0f : top / largest, largest * (1 / top)};
}

// Scales of the rows that count, in units of the largest / kOperandMax16; 0 for other rows.
struct RowFactors {
  float of[kMaxHeadDim / 32][kChunkRows];
  float units[kMaxHeadDim / 32];  // value of one unit
};
inline void find_factors(const WeighArgs& args, RowFactors& factors) {
  const std::uint32_t first = args.softmax->first_row;
  const std::uint32_t end = args.softmax->end_row;
  for (std::uint32_t group = 0; group < args.num_groups; ++group) {
    const float* scales = args.row_scales + group * kChunkRows;
    const OperandUnit unit = operand_unit(largest_magnitude_of(scales + first, end - first), 2);
    factors.units[group] = unit.value;
    for (std::uint32_t row = 0; row < kChunkRows; ++row) {
      factors.of[group][row] = row >= first && row < end ? scales[row] * unit.per_unit : 0;
    }
  }
}

// Scores of one query to probabilities of its chunk, relative to the largest, 0 for rows that do
// not count. Returns the factor that brings them to the running maximum.
inline float weigh_row(const SoftmaxArgs& args, std::uint32_t query, float* p) {
  const std::uint32_t begin = args.first_row / kLanes * kLanes;
  const std::uint32_t end = (args.end_row + kLanes - 1) / kLanes * kLanes;
  float* scores = args.scores + std::size_t{query} * kChunkRows;
  const bool is_plain = args.first_row == begin && args.end_row == end && args.soft_cap <= 0 &&
                        args.slopes == nullptr && args.query_end == nullptr;
  if (!is_plain) shape_scores(args, query, scores, begin, end);
  Vec largest_of = load(scores + begin);
  for (std::uint32_t row = begin; row < end; row += kLanes) {
    largest_of = max(largest_of, load(scores + row));
  }
  const float largest = reduce_max(largest_of);
  const float before = args.maximum[query];
  const float after = largest > before ? largest : before;
  // With nothing visible so far every score is -infinity, and so must stay every difference.
  const float reference = after > -1e30f ? after : -1e30f;
  const Vec own = set1(largest > -1e30f ? largest : -1e30f);
  args.maximum[query] = after;
  const float correction = first_lane(exp2(set1(before - reference)));
  const float share = first_lane(exp2(set1(largest - reference)));
  args.correction[query] = correction;
  Vec total = zero();
  for (std::uint32_t row = 0; row < kChunkRows; row += kLanes) {
    const bool counts = row >= begin && row < end;
    const Vec x = counts ? exp2(sub(load(scores + row), own)) : zero();
    total = add(total, x);
    store(p + row, x);
  }
  float* sum = args.sum + std::size_t{query} * kPadFloats;
  store(sum, fma(total, set1(share), mul(load(sum), set1(correction))));
  // The other lanes of the padded sum scale along with the maximum.
  for (std::uint32_t lane = kLanes; lane < kPadFloats; ++lane) sum[lane] *= correction;
  return share;
}

// store_operands(p, factors, codes) writes the operands of 64 rows and returns their sum.
template <typename StoreOperands>
KVARTO_INLINE void weigh_rows(const WeighArgs& args, const StoreOperands& store_operands) {
  const SoftmaxArgs& softmax = *args.softmax;
  RowFactors factors;
  find_factors(args, factors);
  for (std::uint32_t query = 0; query < softmax.num_queries; ++query) {
    float p[kChunkRows];
    const float share = weigh_row(softmax, query, p);
    for (std::uint32_t group = 0; group < args.num_groups; ++group) {
      const std::size_t pair = std::size_t{group} * softmax.num_queries + query;
      const std::int32_t sum =
          store_operands(p, factors.of[group], args.codes + pair * 2 * kChunkRows);
      args.scales[pair] = factors.units[group] * share;
      args.zeros[pair] = -args.zero_point * sum;
    }
  }
}

inline std::int32_t store_operand_bytes(const float* p, const float* factors, std::int8_t* codes) {
  std::int32_t sum = 0;
  for (std::uint32_t row = 0; row < kChunkRows; ++row) {
    const std::int32_t x = nearest_operand(p[row] * factors[row]);
    const std::uint32_t place = (row % 16 / 4 * 4 + row / 16) * 4 + row % 4;
    codes[place] = static_cast<std::int8_t>(x);
    codes[kChunkRows + place] = static_cast<std::int8_t>((x + 128) >> 8);
    sum += x;
  }
  return sum;
}

inline void weigh(const WeighArgs& args) {
  weigh_rows(args, [](const float* p, const float* factors, std::int8_t* codes) {
    return store_operand_bytes(p, factors, codes);
  });
}

inline void load_scales(const LoadScalesArgs& args) {
  for (std::uint32_t tile = 0; tile < args.count; ++tile) {
    for (std::uint32_t group = 0; group < args.num_groups; ++group) {
      const std::byte* from =
          args.from + args.offsets[tile] + std::size_t{group} * kCodeRows * (args.is_f16 ? 2 : 4);
      float* out = args.out + group * kChunkRows + tile * kCodeRows;
      args.is_f16 ? to_f32<Element::kF16>(from, out, kCodeRows)
                  : to_f32<Element::kF32>(from, out, kCodeRows);
    }
  }
}

inline void pack_query_codes(const PackQueryCodesArgs& args) {
  const std::uint32_t num_words = args.dim / 4;
  const std::uint32_t num_groups = (args.dim + args.group_elements - 1) / args.group_elements;
  std::int32_t* zeros = args.out + std::size_t{args.parts} * num_words * args.tile;
  std::int32_t* scales = zeros + std::size_t{num_groups} * args.tile;
  for (std::int32_t* word = args.out; word != scales + args.tile; ++word) *word = 0;
  for (std::uint32_t q = 0; q < args.num_queries; ++q) {
    float row[kMaxHeadDim];
    for (std::uint32_t d = 0; d < args.dim; ++d) row[d] = args.rows[q][d] * args.scale;
    const OperandUnit unit = operand_unit(largest_magnitude_of(row, args.dim), args.parts);
    __builtin_memcpy(scales + q, &unit.value, sizeof unit.value);
    for (std::uint32_t d = 0; d < args.dim; ++d) {
      const std::int32_t x = nearest_operand(row[d] * unit.per_unit);
      zeros[d / args.group_elements * args.tile + q] -= args.zero_point * x;
      for (std::uint32_t part = 0; part < args.parts; ++part) {
        const std::size_t word = (std::size_t{part} * num_words + d / 4) * args.tile + q;
        reinterpret_cast<std::int8_t*>(args.out + word)[d % 4] =
            static_cast<std::int8_t>(part == 0 ? x : (x + 128) >> 8);
      }
    }
  }
}

// Eight numbers, which the compiler keeps in what registers the set has; loops over arrays it
// unrolls instead.
using EightWords = std::uint32_t __attribute__((vector_size(32)));
using EightCodes = std::int32_t __attribute__((vector_size(32)));
using EightFloats = float __attribute__((vector_size(32)));

// Code j of eight words, `half` as in code_at(), times a number or eight, to f32.
template <int kBits, typename Scale>
KVARTO_INLINE void store_codes(const EightWords& words, std::uint32_t place,
                               std::int32_t zero_point, const Scale& scale, float* out) {
  const EightWords masked = (words >> place) & (kBits == 8 ? 255u : 15u);
  const EightCodes codes = __builtin_convertvector(masked, EightCodes) - zero_point;
  const EightFloats x = __builtin_convertvector(codes, EightFloats) * scale;
  __builtin_memcpy(out, &x, sizeof x);
}
template <int kBits>
KVARTO_INLINE std::uint32_t code_place(std::uint32_t half, std::uint32_t j) {
  return 8 * j + (kBits == 8 ? 0 : 4 * half);
}

// A tile of keys to f32, [dim][16].
template <int kBits>
void fill_key_codes(const FillCodesArgs& args) {
  constexpr std::uint32_t kWords = 8 / kBits;
  for (std::uint32_t word = 0; word < args.dim / 4; ++word) {
    const std::byte* line = args.codes + std::size_t{word / kWords} * kLineBytes;
    const float* scales = args.row_scales + word * 4 / args.group_elements * kChunkRows;
    float* out = args.out + std::size_t{word} * 4 * kCodeRows;
    for (std::uint32_t row = 0; row < kCodeRows; row += 8) {
      EightWords words;
      EightFloats scale;
      __builtin_memcpy(&words, line + row * 4, sizeof words);
      __builtin_memcpy(&scale, scales + row, sizeof scale);
      for (std::uint32_t j = 0; j < 4; ++j) {
        store_codes<kBits>(words, code_place<kBits>(word % kWords, j), args.zero_point, scale,
                           out + j * kCodeRows + row);
      }
    }
  }
}

// A tile of values to f32, 16 rows of `stride` floats.
template <int kBits>
void fill_value_codes(const FillCodesArgs& args) {
  constexpr std::uint32_t kLines = kBits / 2;
  constexpr std::uint32_t kQuads = 8 / kBits;
  for (std::uint32_t d = 0; d < args.dim; d += 8) {
    const float* scales = args.row_scales + d / args.group_elements * kChunkRows;
    for (std::uint32_t quad = 0; quad < 4; ++quad) {
      const std::size_t line = std::size_t{d / 16} * kLines + quad / kQuads;
      EightWords words;
      __builtin_memcpy(&words, args.codes + line * kLineBytes + d % 16 * 4, sizeof words);
      for (std::uint32_t j = 0; j < 4; ++j) {
        const std::uint32_t row = 4 * quad + j;
        store_codes<kBits>(words, code_place<kBits>(quad % kQuads, j), args.zero_point, scales[row],
                           args.out + std::size_t{row} * args.stride + d);
      }
    }
  }
}

template <int kBits, int kParts>
inline void fill_code_scores(CodeKernels& kernels) {
  constexpr int b = kBits == 8 ? 0 : 1;
  kernels.score[b][kParts - 1][0] = score_codes<kBits, kParts, 1>;
  kernels.score[b][kParts - 1][1] = score_codes<kBits, kParts, 2>;
  kernels.score[b][kParts - 1][2] = score_codes<kBits, kParts, 4>;
  kernels.score[b][kParts - 1][3] = score_codes<kBits, kParts, 8>;
}

template <int kBits>
inline void fill_code_tiles(CodeKernels& kernels) {
  constexpr int b = kBits == 8 ? 0 : 1;
  fill_code_scores<kBits, 1>(kernels);
  fill_code_scores<kBits, 2>(kernels);
  kernels.accumulate[b][0] = accumulate_codes<kBits, 1>;
  kernels.accumulate[b][1] = accumulate_codes<kBits, 2>;
  kernels.accumulate[b][2] = accumulate_codes<kBits, 4>;
  kernels.accumulate[b][3] = accumulate_codes<kBits, 8>;
  kernels.fill_keys[b] = fill_key_codes<kBits>;
  kernels.fill_values[b] = fill_value_codes<kBits>;
}

inline CodeKernels make_code_kernels(const char* isa) {
  CodeKernels kernels;
  kernels.isa = isa;
  kernels.pack_queries = pack_query_codes;
  kernels.load_scales = load_scales;
  kernels.weigh = weigh;
  fill_code_tiles<8>(kernels);
  fill_code_tiles<4>(kernels);
  return kernels;
}

}  // namespace kvarto::KVARTO_ISA
