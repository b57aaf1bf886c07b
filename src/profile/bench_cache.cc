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
  if (bench.latent.has_value() && (bench.kv_heads != 1 || bench.v_dim > bench.qk_dim)) {
    return refuse("kv heads", bench.kv_heads, "1, with values that are the first elements of keys");
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

Result<SliceShape> shape_of(const AttentionBench& bench, bool is_key, std::uint64_t rows,
                            const KernelTable& kernels) {
  Stream stream;
  stream.fields = {{.name = is_key ? "k" : "v",
                    .heads = bench.kv_heads,
                    .width = is_key ? bench.qk_dim : bench.v_dim,
                    .role = is_key ? CodecRole::kKey : CodecRole::kValue,
                    .codec = is_key ? bench.k_codec : bench.v_codec}};
  if (bench.latent.has_value()) {
    stream.fields[0].width = bench.v_dim;
    stream.fields.push_back({.name = "tail",
                             .heads = 1,
                             .width = bench.qk_dim - bench.v_dim,
                             .role = CodecRole::kKey,
                             .codec = bench.latent->tail_codec});
    if (bench.qk_dim == bench.v_dim) stream.fields.pop_back();
  }
  const CodecInfo& info = codec_info(stream.fields[0].codec);
  SliceShape shape = slice_shape(stream, is_key && !bench.latent.has_value(), bench.layout, rows);
  if (!shape.is_coded_by(kernels)) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("kv type: found {}, expected one that a cache can be written in", info.name));
  }
  if (!info.is_partial_group_allowed && stream.fields[0].width % info.group_elements != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("head dim: found {}, expected a multiple of {} for {}",
                            stream.fields[0].width, info.group_elements, info.name));
  }
  return shape;
}

std::uint64_t row_bytes_of(const SliceShape& shape) {
  std::uint64_t bytes = 0;
  for (const FieldShape& field : shape.fields) bytes += field.head_bytes * field.heads;
  return bytes;
}

// What the cache gives back for rows of these heads.
void round_to_stored(const SliceShape& shape, const KernelTable& kernels,
                     std::vector<float>& rows) {
  for (std::size_t i = 0; i < rows.size();) {
    for (const FieldShape& field : shape.fields) {
      const auto codec = static_cast<std::size_t>(field.codec);
      std::vector<std::byte> image(field.head_bytes);
      for (std::uint32_t head = 0; head < field.heads; ++head, i += field.width) {
        kernels.encode[codec](&rows[i], image.data(), field.width);
        kernels.decode[codec](image.data(), &rows[i], field.width);
      }
    }
  }
}

}  // namespace

Result<BenchCache> BenchCache::create(const AttentionBench& bench, const KernelTable& kernels) {
  KVARTO_CHECK_OK(check(bench));
  BenchCache cache;
  cache.bench_ = bench;
  // One block a sequence: whole tiles, so that the hardware layout is possible.
  cache.block_size_ =
      bench.block_size != 0 ? bench.block_size : round_up(bench.kv_len, kKeyTileRows);
  KVARTO_TRY(cache.k_shape_, shape_of(bench, true, cache.block_size_, kernels));
  KVARTO_TRY(cache.v_shape_, shape_of(bench, false, cache.block_size_, kernels));
  cache.set_lengths();
  const std::uint64_t k_row = row_bytes_of(cache.k_shape_);
  const std::uint64_t v_row = bench.latent.has_value() ? 0 : row_bytes_of(cache.v_shape_);
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
  if (!bench_.latent.has_value()) {
    values_.resize(num_distinct_rows_ * bench_.kv_heads * bench_.v_dim);
  }
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const std::size_t channel = i % bench_.qk_dim;
    keys_[i] = normal(random);
    if (is_outlier && channel % 13 == 5) keys_[i] += kOffsets[channel / 13 % 3];
  }
  for (float& x : values_) x = normal(random);
  queries_.resize(std::uint64_t{bench_.batch} * bench_.q_len * bench_.q_heads * bench_.qk_dim);
  for (float& x : queries_) x = normal(random) * (is_outlier ? 4.0f : 1.0f);
  write_rows_of_all(kernels);
  // Encoding what was decoded may give other bytes: rows are rounded after they are written.
  round_to_stored(k_shape_, kernels, keys_);
  if (!values_.empty()) round_to_stored(v_shape_, kernels, values_);
  if (bench_.arith == Arith::kF16) {
    k_squares_ = ElementSquares(bench_.kv_heads, bench_.qk_dim);
    const auto as_rows = [&](std::span<const float> rows) {
      return ElementSquares::Rows{std::as_bytes(rows).data(), Element::kF32, num_distinct_rows_};
    };
    k_squares_.add(as_rows(keys_), kernels);
    if (values_.empty()) return;
    v_squares_ = ElementSquares(bench_.kv_heads, bench_.v_dim);
    v_squares_.add(as_rows(values_), kernels);
  }
}

void BenchCache::write_rows_of_all(const KernelTable& kernels) {
  const std::uint64_t stride = k_slice_bytes_ + v_slice_bytes_;
  for (std::uint32_t s = 0; s < bench_.batch; ++s) {
    sequences_.push_back({tables_[s], 0, lengths_[s]});
    if (s > 0 && bench_.batch_kind == BenchBatch::kForked) continue;
    for (std::uint64_t row = 0; row < lengths_[s]; ++row) {
      const std::uint64_t source = row % num_distinct_rows_;
      const RowRun run{row % block_size_, 1};
      std::byte* slice = storage_.begin() + tables_[s][row / block_size_] * stride;
      const auto row_of = [&](const std::vector<float>& rows, const SliceShape& shape) {
        const float* begin = rows.data() + source * shape.row_elements();
        return SourceRows{reinterpret_cast<const std::byte*>(begin), Codec::kF32};
      };
      write_rows(k_shape_, slice, run, row_of(keys_, k_shape_), kernels);
      if (values_.empty()) continue;
      write_rows(v_shape_, slice + k_slice_bytes_, run, row_of(values_, v_shape_), kernels);
    }
  }
}

CacheView BenchCache::view() const {
  CacheView cache;
  const std::uint64_t stride = k_slice_bytes_ + v_slice_bytes_;
  const auto stream_view = [&](const FieldShape& field, std::uint64_t offset_bytes) {
    return StreamView{.base = storage_.begin() + offset_bytes + field.offset_bytes,
                      .block_stride_bytes = stride,
                      .layout = field.layout,
                      .codec = field.codec,
                      .heads = field.heads,
                      .width = field.width};
  };
  cache.k = stream_view(k_shape_.fields[0], 0);
  cache.k.squares = k_squares_.view();
  if (bench_.latent.has_value()) {
    cache.v = cache.k;
    cache.v.width = bench_.v_dim;
    if (k_shape_.fields.size() > 1) cache.k_tail = stream_view(k_shape_.fields[1], 0);
  } else {
    cache.v = stream_view(v_shape_.fields[0], k_slice_bytes_);
    cache.v.squares = v_squares_.view();
  }
  cache.rows_per_block = static_cast<std::uint32_t>(block_size_);
  cache.sequences = sequences_;
  return cache;
}

std::uint64_t BenchCache::row_bytes() const {
  return (k_slice_bytes_ + v_slice_bytes_) / block_size_;
}

BenchCache::ExactHead BenchCache::exact(std::uint64_t token, std::uint32_t q_head,
                                        std::span<const float> q,
                                        std::optional<double> scale) const {
  const std::uint64_t position =
      lengths_[token / bench_.q_len] - bench_.q_len + token % bench_.q_len;
  const std::uint32_t head = q_head / (bench_.q_heads / bench_.kv_heads);
  ReferenceCall call;
  call.q = q;
  call.qk_dim = bench_.qk_dim;
  call.v_dim = bench_.v_dim;
  call.end_row = position + 1;
  if (bench_.window != 0 && call.end_row > bench_.window) {
    call.first_row = call.end_row - bench_.window;
  }
  call.scale = scale.value_or(1 / std::sqrt(static_cast<double>(bench_.qk_dim)));
  std::vector<float> keys(call.end_row * bench_.qk_dim);
  std::vector<float> values(call.end_row * bench_.v_dim);
  // The values of shared rows are the first elements of the keys.
  const std::vector<float>& stored_values = values_.empty() ? keys_ : values_;
  const std::uint64_t value_stride = values_.empty() ? bench_.qk_dim : bench_.v_dim;
  for (std::uint64_t row = call.first_row; row < call.end_row; ++row) {
    const std::uint64_t source = row % num_distinct_rows_ * bench_.kv_heads + head;
    std::copy_n(&keys_[source * bench_.qk_dim], bench_.qk_dim, &keys[row * bench_.qk_dim]);
    std::copy_n(&stored_values[source * value_stride], bench_.v_dim, &values[row * bench_.v_dim]);
  }
  call.k = keys;
  call.v = values;
  ReferenceResult result = reference_attention(call);
  const HeadMagnitudes magnitudes = magnitudes_of(call, result);
  return {std::move(result.out), magnitudes};
}

HeadMagnitudes BenchCache::compare(std::uint64_t token, std::uint32_t q_head,
                                   std::span<const float> out, double& difference,
                                   double& reference) const {
  const auto q =
      std::span(queries_).subspan((token * bench_.q_heads + q_head) * bench_.qk_dim, bench_.qk_dim);
  const ExactHead head = exact(token, q_head, q, std::nullopt);
  for (std::uint32_t d = 0; d < bench_.v_dim; ++d) {
    difference = std::max(difference, std::fabs(double{out[d]} - head.out[d]));
    reference = std::max(reference, std::fabs(head.out[d]));
  }
  return head.magnitudes;
}

}  // namespace kvarto
