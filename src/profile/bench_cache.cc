#include "profile/bench_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "kernels/reference.h"

namespace kvarto {
namespace {

// Rows after these repeat them: making gigabytes of random numbers would take longer than any
// measurement, and the reference of a repeated row is the same.
constexpr std::uint64_t kDistinctRows = 1024;
constexpr std::uint64_t kSeed = 20260101;
// Far beyond any memory; products of these fit 64 bits.
constexpr std::uint32_t kMaxBatch = 1u << 16;
constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 40;

Result<Element> element_of(Codec codec) {
  switch (codec) {
    case Codec::kF32:
      return Element::kF32;
    case Codec::kF16:
      return Element::kF16;
    case Codec::kBF16:
      return Element::kBF16;
    default:
      break;
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("kv type: found {}, expected f32, f16 or bf16", codec_info(codec).name));
}

Status check(const AttentionBench& bench) {
  const auto refuse = [](const char* name, std::uint64_t found, const std::string& expected) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: found {}, expected {}", name, found, expected));
  };
  if (bench.kv_heads == 0) return refuse("kv heads", 0, "at least 1");
  if (bench.q_heads == 0 || bench.q_heads % bench.kv_heads != 0) {
    return refuse("query heads", bench.q_heads,
                  fmt::format("a multiple of the {} kv heads", bench.kv_heads));
  }
  for (const std::uint32_t dim : {bench.qk_dim, bench.v_dim}) {
    if (dim == 0 || dim > kMaxHeadDim) {
      return refuse("head dim", dim, fmt::format("1 to {}", kMaxHeadDim));
    }
  }
  if (bench.batch == 0 || bench.batch > kMaxBatch) {
    return refuse("batch", bench.batch, fmt::format("1 to {}", kMaxBatch));
  }
  if (bench.kv_len == 0 || bench.kv_len > kMaxTokens) {
    return refuse("kv length", bench.kv_len, fmt::format("1 to {}", kMaxTokens));
  }
  if (bench.q_len == 0 || bench.q_len > bench.kv_len) {
    return refuse("query length", bench.q_len, fmt::format("1 to the kv length {}", bench.kv_len));
  }
  if (bench.q_len > 1 && bench.batch_kind != BenchBatch::kEqual) {
    return refuse("query length", bench.q_len, "1 for a forked or ragged batch");
  }
  return {};
}

Stream stream_of(const AttentionBench& bench, std::uint32_t width) {
  Stream stream;
  stream.fields.push_back({.name = "x", .heads = bench.kv_heads, .width = width});
  stream.fields.back().codec = bench.codec;
  return stream;
}

}  // namespace

Result<BenchCache> BenchCache::create(const AttentionBench& bench, const KernelTable& kernels) {
  KVARTO_CHECK_OK(check(bench));
  BenchCache cache;
  cache.bench_ = bench;
  KVARTO_TRY(cache.element_, element_of(bench.codec));
  // One block a sequence: whole tiles, so that the hardware layout is possible.
  cache.block_size_ =
      bench.block_size != 0 ? bench.block_size : round_up(bench.kv_len, kKeyTileRows);
  cache.k_layout_ =
      choose_layout(stream_of(bench, bench.qk_dim), true, bench.layout, cache.block_size_);
  cache.v_layout_ =
      choose_layout(stream_of(bench, bench.v_dim), false, bench.layout, cache.block_size_);
  cache.set_lengths();
  const std::uint64_t k_row = codec_bytes(bench.codec, bench.qk_dim).total() * bench.kv_heads;
  const std::uint64_t v_row = codec_bytes(bench.codec, bench.v_dim).total() * bench.kv_heads;
  const std::uint64_t all_blocks = cache.num_blocks();
  const auto rows = checked_mul(all_blocks, cache.block_size_);
  const auto bytes = rows ? checked_mul(*rows, k_row + v_row) : std::nullopt;
  const auto query_floats =
      checked_mul(bench.q_len * bench.batch,
                  std::uint64_t{bench.q_heads} * std::max(bench.qk_dim, bench.v_dim));
  constexpr std::uint64_t kMaxQueryFloats = std::uint64_t{1} << 30;
  if (!bytes.has_value() || all_blocks > 0xffffffffu || bench.q_len > kMaxQueryFloats ||
      !query_floats.has_value() || *query_floats > kMaxQueryFloats) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("kv length {} x batch {}: too large", bench.kv_len, bench.batch));
  }
  if (*bytes > available_memory_bytes()) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("the cache of this measurement needs {} bytes, {} are available",
                            *bytes, available_memory_bytes()));
  }
  cache.k_slice_bytes_ = k_row * cache.block_size_;
  cache.v_slice_bytes_ = v_row * cache.block_size_;
  KVARTO_TRY(cache.storage_, Storage::map(*bytes, true));
  KVARTO_CHECK_OK(cache.storage_.populate());
  cache.shuffle_blocks();
  cache.fill(kernels);
  return cache;
}

void BenchCache::set_lengths() {
  for (std::uint32_t s = 0; s < bench_.batch; ++s) {
    const bool is_ragged = bench_.batch_kind == BenchBatch::kRagged && bench_.batch > 1;
    lengths_.push_back(is_ragged ? 1 + s * (bench_.kv_len - 1) / (bench_.batch - 1)
                                 : bench_.kv_len);
  }
}

std::uint64_t BenchCache::num_blocks() const {
  if (bench_.batch_kind == BenchBatch::kForked) return ceil_div(bench_.kv_len, block_size_);
  std::uint64_t blocks = 0;
  for (const std::uint64_t length : lengths_) blocks += ceil_div(length, block_size_);
  return blocks;
}

void BenchCache::shuffle_blocks() {
  std::vector<std::uint32_t> ids(num_blocks());
  std::iota(ids.begin(), ids.end(), 0u);
  std::mt19937_64 random(kSeed);
  std::shuffle(ids.begin(), ids.end(), random);
  auto next = ids.begin();
  for (const std::uint64_t length : lengths_) {
    const auto end = next + static_cast<std::ptrdiff_t>(ceil_div(length, block_size_));
    tables_.emplace_back(next, end);
    if (bench_.batch_kind != BenchBatch::kForked) next = end;
  }
}

void BenchCache::fill(const KernelTable& kernels) {
  std::mt19937_64 random(kSeed + 1);
  std::normal_distribution<float> normal;
  constexpr float kOffsets[] = {30, 100, 300};
  const bool is_outlier = bench_.content == BenchContent::kOutlier;
  num_distinct_rows_ = std::min(kDistinctRows, bench_.kv_len);
  keys_.resize(num_distinct_rows_ * bench_.kv_heads * bench_.qk_dim);
  values_.resize(num_distinct_rows_ * bench_.kv_heads * bench_.v_dim);
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const std::size_t channel = i % bench_.qk_dim;
    keys_[i] = normal(random);
    if (is_outlier && channel % 13 == 5) keys_[i] += kOffsets[channel / 13 % 3];
  }
  for (float& x : values_) x = normal(random);
  queries_.resize(std::uint64_t{bench_.batch} * bench_.q_len * bench_.q_heads * bench_.qk_dim);
  for (float& x : queries_) x = normal(random) * (is_outlier ? 4.0f : 1.0f);
  // As they will be stored.
  const auto e = static_cast<std::size_t>(element_);
  for (std::vector<float>* rows : {&keys_, &values_}) {
    std::vector<std::byte> stored(codec_bytes(bench_.codec, rows->size()).total());
    kernels.from_f32[e](rows->data(), stored.data(), rows->size());
    kernels.to_f32[e](stored.data(), rows->data(), rows->size());
  }
  if (bench_.arith == Arith::kF16) {
    k_squares_ = ElementSquares(bench_.kv_heads, bench_.qk_dim);
    v_squares_ = ElementSquares(bench_.kv_heads, bench_.v_dim);
    const auto as_rows = [&](std::span<const float> rows) {
      return ElementSquares::Rows{std::as_bytes(rows).data(), Element::kF32, num_distinct_rows_};
    };
    k_squares_.add(as_rows(keys_), kernels);
    v_squares_.add(as_rows(values_), kernels);
  }
  const CacheView cache = view();
  const std::size_t k_row = std::size_t{bench_.kv_heads} * bench_.qk_dim;
  const std::size_t v_row = std::size_t{bench_.kv_heads} * bench_.v_dim;
  for (std::uint32_t s = 0; s < bench_.batch; ++s) {
    sequences_.push_back({tables_[s], 0, lengths_[s]});
    if (s > 0 && bench_.batch_kind == BenchBatch::kForked) continue;
    for (std::uint64_t row = 0; row < lengths_[s]; ++row) {
      const std::uint64_t source = row % num_distinct_rows_;
      write_row(kernels, cache.k, s, row, std::span(keys_).subspan(source * k_row, k_row));
      write_row(kernels, cache.v, s, row, std::span(values_).subspan(source * v_row, v_row));
    }
  }
}

void BenchCache::write_row(const KernelTable& kernels, const StreamView& stream,
                           std::uint32_t sequence, std::uint64_t row,
                           std::span<const float> values) const {
  const auto e = static_cast<std::size_t>(element_);
  const std::uint64_t block = tables_[sequence][row / block_size_];
  const std::uint64_t place = row % block_size_;
  const std::uint64_t element_bytes = codec_info(bench_.codec).element_bits / 8;
  std::byte* slice = storage_.begin() + (stream.base - storage_.begin()) +
                     static_cast<std::ptrdiff_t>(block * stream.block_stride_bytes);
  for (std::uint32_t head = 0; head < stream.heads; ++head) {
    const float* from = values.data() + std::size_t{head} * stream.width;
    std::byte* to = slice + head * stream.layout.head_stride_bytes;
    if (stream.layout.order == RowOrder::kHeadTiles) {
      to += place / kKeyTileRows * stream.layout.row_stride_bytes +
            place % kKeyTileRows * element_bytes;
      kernels.from_f32_tile[e](from, to, stream.width);
    } else {
      kernels.from_f32[e](from, to + place * stream.layout.row_stride_bytes, stream.width);
    }
  }
}

CacheView BenchCache::view() const {
  CacheView cache;
  const std::uint64_t stride = k_slice_bytes_ + v_slice_bytes_;
  cache.k = {storage_.begin(), stride, k_layout_, bench_.codec, bench_.kv_heads, bench_.qk_dim};
  cache.v = {storage_.begin() + k_slice_bytes_,
             stride,
             v_layout_,
             bench_.codec,
             bench_.kv_heads,
             bench_.v_dim};
  cache.k.squares = k_squares_.view();
  cache.v.squares = v_squares_.view();
  cache.rows_per_block = static_cast<std::uint32_t>(block_size_);
  cache.sequences = sequences_;
  return cache;
}

void BenchCache::compare(std::uint64_t token, std::uint32_t q_head, std::span<const float> out,
                         double& difference, double& reference) const {
  const std::uint64_t position =
      lengths_[token / bench_.q_len] - bench_.q_len + token % bench_.q_len;
  const std::uint32_t head = q_head / (bench_.q_heads / bench_.kv_heads);
  ReferenceCall call;
  call.q =
      std::span(queries_).subspan((token * bench_.q_heads + q_head) * bench_.qk_dim, bench_.qk_dim);
  call.qk_dim = bench_.qk_dim;
  call.v_dim = bench_.v_dim;
  call.end_row = position + 1;
  if (bench_.window != 0 && call.end_row > bench_.window) {
    call.first_row = call.end_row - bench_.window;
  }
  call.scale = 1 / std::sqrt(static_cast<double>(bench_.qk_dim));
  std::vector<float> keys(call.end_row * bench_.qk_dim);
  std::vector<float> values(call.end_row * bench_.v_dim);
  for (std::uint64_t row = call.first_row; row < call.end_row; ++row) {
    const std::uint64_t source = row % num_distinct_rows_ * bench_.kv_heads + head;
    std::copy_n(&keys_[source * bench_.qk_dim], bench_.qk_dim, &keys[row * bench_.qk_dim]);
    std::copy_n(&values_[source * bench_.v_dim], bench_.v_dim, &values[row * bench_.v_dim]);
  }
  call.k = keys;
  call.v = values;
  const ReferenceResult exact = reference_attention(call);
  for (std::uint32_t d = 0; d < bench_.v_dim; ++d) {
    difference = std::max(difference, std::fabs(double{out[d]} - exact.out[d]));
    reference = std::max(reference, std::fabs(exact.out[d]));
  }
}

}  // namespace kvarto
