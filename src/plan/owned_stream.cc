#include "plan/owned_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "kvarto/tracks.h"

namespace kvarto {
namespace {

// Beyond this a field is refused: the sums of a row's fields then stay far below 64 bits.
constexpr std::uint64_t kMaxFieldBytes = std::uint64_t{1} << 48;

constexpr std::uint64_t kMaxLifetimeTokens = std::uint64_t{1} << 60;

Status check_stream(const Stream& stream) {
  if (stream.tokens_per_row == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {}: tokens per row 0, expected at least 1", stream.name));
  }
  const Lifetime& lifetime = stream.lifetime;
  if (lifetime.tokens > kMaxLifetimeTokens) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {}: lifetime {}, expected at most 2^60 tokens", stream.name,
                            to_string(lifetime)));
  }
  if (lifetime.kind == Lifetime::Kind::kChunk &&
      (lifetime.tokens == 0 || stream.tokens_per_row != 1)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {}: lifetime {} with {} tokens a row, expected a chunk of at "
                            "least 1 token and 1 token a row",
                            stream.name, to_string(lifetime), stream.tokens_per_row));
  }
  return {};
}

}  // namespace

Result<RowBytes> rank_row_bytes(const Stream& stream, std::uint32_t tensor_parallel) {
  RowBytes row;
  for (const Field& field : stream.fields) {
    const std::uint32_t heads =
        stream.shard == Shard::kHead ? heads_on_rank(field.heads, tensor_parallel) : field.heads;
    const CodecBytes head = codec_bytes(field.codec, field.width);
    const auto bytes = checked_mul(head.total(), heads);
    if (!bytes || *bytes > kMaxFieldBytes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("stream {}, field {}: a row of {} heads x {} elements, expected at "
                              "most 2^48 bytes",
                              stream.name, field.name, heads, field.width));
    }
    row.payload += head.payload * heads;
    row.scales += head.scales * heads;
  }
  row.padding = stream.row_pad_bytes;
  return row;
}

Result<std::vector<OwnedStream>> owned_streams(std::span<const LayerGroup> groups,
                                               std::uint32_t tensor_parallel) {
  std::vector<OwnedStream> owned;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const Stream& stream : groups[g].streams) {
      KVARTO_CHECK_OK(check_stream(stream));
      if (stream.owner_layer) continue;
      KVARTO_TRY(const RowBytes whole, rank_row_bytes(stream, 1));
      KVARTO_TRY(const RowBytes on_rank, rank_row_bytes(stream, tensor_parallel));
      owned.push_back({.group = &groups[g],
                       .stream = &stream,
                       .group_index = g,
                       .num_layers = groups[g].layers.size(),
                       .whole = whole,
                       .on_rank = on_rank});
    }
  }
  return owned;
}

IdealRows ideal_rows(const Stream& stream, const PlanRequest& request) {
  IdealRows rows{.live = peak_rows(stream, request.context)};
  if (stream.lifetime.kind == Lifetime::Kind::kConstant) {
    rows.in_flight = rows.live * request.draft_tokens;
    return rows;
  }
  std::uint64_t in_flight = 0;
  if (stream.lifetime.kind == Lifetime::Kind::kWindow) {
    const std::uint64_t delay = std::min(request.context, stream.birth_delay_tokens);
    const std::uint64_t born = (request.context - delay) / stream.tokens_per_row;
    in_flight = std::min<std::uint64_t>(born - rows.live,
                                        ceil_div(request.draft_tokens, stream.tokens_per_row));
  }
  const std::uint64_t held = ceil_div(rows.live + in_flight, request.context_parallel);
  rows.live = ceil_div(rows.live, request.context_parallel);
  rows.in_flight = held - rows.live;
  return rows;
}

RowCauses row_causes(Purpose purpose) {
  switch (purpose) {
    case Purpose::kAttention:
      return {};
    case Purpose::kIndexer:
      return {Cause::kIndexer, Cause::kIndexer, Cause::kPadding};
    case Purpose::kState:
      return {Cause::kState, Cause::kState, Cause::kPadding};
    case Purpose::kMetadata:
      return {Cause::kMetadata, Cause::kMetadata, Cause::kPadding};
    case Purpose::kMask:
      return {Cause::kMask, Cause::kMask, Cause::kPadding};
  }
  return {};
}

LedgerSubject subject_of(const OwnedStream& owned) {
  return {.stream = owned.stream->name,
          .architecture = owned.group->architecture,
          .layers = static_cast<std::uint32_t>(owned.num_layers),
          .group = owned.group_index};
}

Result<std::uint64_t> total_rows(const OwnedStream& owned, const RowCount& count) {
  const auto layer_rows = checked_mul(owned.num_layers, count.rows);
  const auto rows = layer_rows ? checked_mul(*layer_rows, count.num_sequences) : std::nullopt;
  if (!rows) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {}: {} layers x {} rows x {} sequences overflow 64 bits",
                            owned.stream->name, owned.num_layers, count.rows, count.num_sequences));
  }
  return *rows;
}

Status add_rows(Ledger& ledger, const OwnedStream& owned, const RowCount& count,
                const RowCauses& causes) {
  KVARTO_TRY(const std::uint64_t rows, total_rows(owned, count));
  if (rows == 0) return {};
  const RowBytes& whole = owned.whole;
  if (!checked_mul(rows, whole.total()) || !checked_mul(rows, owned.on_rank.total())) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream {}: {} rows of {} bytes overflow 64 bits", owned.stream->name,
                            rows, whole.total()));
  }
  const LedgerSubject subject = subject_of(owned);
  const auto add = [&](Cause cause, std::uint64_t on_rank, std::uint64_t of_all) {
    ledger.add_share(cause, subject, {on_rank * rows, of_all * rows, count.num_ranks});
  };
  add(causes.payload, owned.on_rank.payload, whole.payload);
  add(causes.scales, owned.on_rank.scales, whole.scales);
  add(causes.padding, owned.on_rank.padding, whole.padding);
  return {};
}

}  // namespace kvarto
