#include "kvarto/tracks.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/checked.h"

namespace kvarto {
namespace {

bool has_blocks(const Stream& stream) {
  return !stream.owner_layer && stream.lifetime.kind != Lifetime::Kind::kStep;
}

std::uint64_t rows_per_block_of(const Stream& stream, std::uint64_t block_size) {
  if (stream.lifetime.kind == Lifetime::Kind::kConstant) return 1;
  return std::max<std::uint64_t>(1, block_size / stream.tokens_per_row);
}

Track& track_of(std::vector<Track>& tracks, const Stream& stream, std::uint64_t block_size) {
  for (Track& track : tracks) {
    if (track.tokens_per_row == stream.tokens_per_row &&
        track.birth_delay_tokens == stream.birth_delay_tokens &&
        track.lifetime == stream.lifetime) {
      return track;
    }
  }
  tracks.push_back({.tokens_per_row = stream.tokens_per_row,
                    .birth_delay_tokens = stream.birth_delay_tokens,
                    .lifetime = stream.lifetime,
                    .rows_per_block = rows_per_block_of(stream, block_size)});
  return tracks.back();
}

// First row of a block that holds row `first_visible`, counted in blocks.
std::uint64_t first_block(const Track& track, std::uint64_t first_visible_row) {
  return first_visible_row / track.rows_per_block;
}

}  // namespace

std::uint32_t heads_on_rank(std::uint32_t heads, std::uint32_t tensor_parallel) {
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, ceil_div(heads, tensor_parallel)));
}

std::uint64_t squares_bytes(const Stream& stream) {
  const Lifetime::Kind kind = stream.lifetime.kind;
  if (kind == Lifetime::Kind::kConstant || kind == Lifetime::Kind::kStep) return 0;
  // Rows of several fields are followed where they are read as one.
  const bool is_one_field = stream.fields.size() == 1;
  if (!is_one_field && (stream.row_pad_bytes != 0 || stream.block_align_bytes != 1)) return 0;
  std::uint64_t elements = 0;
  for (const Field& field : stream.fields) {
    if (field.codec != Codec::kF16 || (!is_one_field && field.heads != 1)) return 0;
    elements += std::uint64_t{field.heads} * field.width;
  }
  return elements * 2 * sizeof(float);
}

Result<std::uint64_t> pool_bytes(const Track& track, std::uint64_t num_blocks) {
  const auto bytes = checked_mul(track.block_bytes, num_blocks);
  if (!bytes || *bytes > (std::uint64_t{1} << 62)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} blocks of {} bytes, expected at most 2^62 bytes in all", num_blocks,
                            track.block_bytes));
  }
  return round_up(*bytes, kPoolAlignBytes);
}

Result<std::vector<Track>> make_tracks(const ModelSpec& model, std::uint64_t block_size,
                                       std::uint32_t tensor_parallel) {
  if (block_size == 0 || block_size > (1u << 24)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("block size {}, expected 1 to {} tokens", block_size, 1u << 24));
  }
  if (tensor_parallel == 0) {
    return fail(ErrorCode::kInvalidArgument, "tensor parallel size 0, expected at least 1");
  }
  std::vector<Track> tracks;
  for (std::size_t g = 0; g < model.groups.size(); ++g) {
    const LayerGroup& group = model.groups[g];
    for (std::size_t s = 0; s < group.streams.size(); ++s) {
      Stream stream = group.streams[s];
      if (!has_blocks(stream)) continue;
      for (const Field& field : stream.fields) {
        if (static_cast<int>(field.codec) < kNumCodecs) continue;
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("stream {}: codec {}, expected one of Codec", stream.name,
                                static_cast<unsigned>(field.codec)));
      }
      if (stream.shard == Shard::kHead) {
        for (Field& field : stream.fields) {
          field.heads = heads_on_rank(field.heads, tensor_parallel);
        }
      }
      Track& track = track_of(tracks, stream, block_size);
      const RowBytes row = row_bytes(stream);
      const std::uint64_t rows = track.rows_per_block;
      const auto raw = checked_mul(row.total(), rows);
      if (!raw || *raw > (std::uint64_t{1} << 62)) {
        return fail(
            ErrorCode::kInvalidArgument,
            fmt::format("stream {}: a block of {} rows exceeds 2^62 bytes", stream.name, rows));
      }
      // FlashMLA's blocks of packed rows are multiples of 576 bytes for its GPU kernels
      // (Stream::block_align_bytes). This cache needs cache lines alone, and small blocks would
      // lose a fifth to that padding.
      const std::uint64_t slice = round_up(*raw, kSliceAlignBytes);
      track.streams.push_back({.group = static_cast<std::uint32_t>(g),
                               .stream = static_cast<std::uint32_t>(s),
                               .layers = static_cast<std::uint32_t>(group.layers.size()),
                               .payload_bytes = row.payload * rows,
                               .scale_bytes = row.scales * rows,
                               .padding_bytes = slice - (row.payload + row.scales) * rows});
      CheckedSum bytes;
      bytes.add(track.block_bytes);
      bytes.add_product(slice, group.layers.size());
      if (bytes.has_overflow()) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("stream {}: block bytes overflow 64 bits", stream.name));
      }
      track.block_bytes = bytes.total();
    }
  }
  return tracks;
}

std::uint64_t share_unit_tokens(const std::vector<Track>& tracks) {
  constexpr std::uint64_t kSaturated = std::uint64_t{1} << 63;
  std::uint64_t unit = 1;
  for (const Track& track : tracks) {
    const std::uint64_t span = track.tokens_per_block();
    if (span == 0) continue;
    const auto next = checked_mul(unit / std::gcd(unit, span), span);
    if (!next) return kSaturated;
    unit = *next;
  }
  return unit;
}

std::uint64_t resident_blocks(const Track& track, std::uint64_t tokens) {
  if (tokens == 0) return 0;
  if (track.lifetime.kind == Lifetime::Kind::kConstant) return 1;
  const std::uint64_t rows = track.born_rows(tokens);
  if (rows == 0) return 0;
  const std::uint64_t end = ceil_div(rows, track.rows_per_block);
  const std::uint64_t n = track.lifetime.tokens;
  switch (track.lifetime.kind) {
    case Lifetime::Kind::kWindow:
      return end - (rows > n ? first_block(track, rows - n) : 0);
    case Lifetime::Kind::kTtl: {
      const std::uint64_t kept = ceil_div(n, track.tokens_per_row);
      return end - (rows > kept ? first_block(track, rows - kept) : 0);
    }
    case Lifetime::Kind::kChunk:
      return end - first_block(track, (tokens - 1) / n * n / track.tokens_per_row);
    case Lifetime::Kind::kKept:
      return ceil_div(std::min(rows, n), track.rows_per_block);
    default:
      return end;
  }
}

std::uint64_t peak_blocks(const Track& track, std::uint64_t tokens, std::uint64_t chunk_tokens) {
  if (tokens == 0) return 0;
  if (track.lifetime.kind == Lifetime::Kind::kConstant) return 1;
  const std::uint64_t rows = track.born_rows(tokens);
  if (rows == 0) return 0;
  const std::uint64_t unbounded = ceil_div(rows, track.rows_per_block);
  // Beyond `tokens` neither bound can bind, and the sums below stay small.
  const std::uint64_t n = std::min(track.lifetime.tokens, tokens);
  const std::uint64_t chunk = std::clamp<std::uint64_t>(chunk_tokens, 1, tokens);
  // Rows that an append bears behind the row that its first token sees last: the first token
  // bears one itself, or the group that it belongs to is not complete.
  const std::uint64_t later_rows = ceil_div(chunk - 1, track.tokens_per_row);
  const std::uint64_t chunk_rows = ceil_div(chunk, track.tokens_per_row);
  // `span` consecutive rows at the worst offset touch this many blocks.
  const auto blocks_of_span = [&](std::uint64_t span) {
    return span == 0 ? 0 : (span - 1 + track.rows_per_block - 1) / track.rows_per_block + 1;
  };
  switch (track.lifetime.kind) {
    case Lifetime::Kind::kWindow:
      return std::min(unbounded, blocks_of_span(n + later_rows));
    case Lifetime::Kind::kTtl:
      return std::min(unbounded, blocks_of_span(ceil_div(n, track.tokens_per_row) + chunk_rows));
    case Lifetime::Kind::kChunk:
      // The rows of one chunk begin at a multiple of it; appends may straddle two chunks.
      return std::min(unbounded, blocks_of_span(n - 1 + chunk_rows));
    case Lifetime::Kind::kKept:
      return std::min(unbounded, ceil_div(n + chunk_rows, track.rows_per_block));
    default:
      return unbounded;
  }
}

}  // namespace kvarto
