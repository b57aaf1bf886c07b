// Engine `kvarto`: what this library's own cache allocates. Rows become bytes in tracks.h alone,
// for the cache and for this file, so that plan and measurement cannot differ.
//
// Every track has one pool of `num_sequences` times the blocks that one sequence needs at its peak.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "kvarto/tracks.h"
#include "plan/engine.h"
#include "plan/owned_stream.h"

namespace kvarto {
namespace {

// Bytes that no single stream owns.
constexpr LedgerSubject kPool = {.stream = "pool", .group = ~std::size_t{0}};

constexpr double kMaxBlocks = 9.2e18;  // below 2^63

Status check_options(const PlanRequest& request) {
  if (request.context_parallel != 1) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("engine kvarto: context parallel size {}, expected 1",
                            request.context_parallel));
  }
  if (request.draft_layers != 0 || request.draft_tokens != 0) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("engine kvarto: {} draft layers and {} draft tokens, expected none: it "
                            "does not speculate",
                            request.draft_layers, request.draft_tokens));
  }
  return {};
}

// One stream of one track on one rank, beside the same of the whole model.
struct SliceCase {
  const PlanRequest& request;
  const Stream& stream;
  const Track& track;
  const TrackStream& on_rank;
  const TrackStream& whole;
  LedgerSubject subject;
  std::uint64_t blocks_per_sequence = 0;
};

// Bytes of one slice that stand for no row: alignment of the slice, without the rows' own padding.
std::uint64_t alignment_bytes(const SliceCase& slice, const TrackStream& bytes) {
  return bytes.padding_bytes - slice.track.rows_per_block * slice.stream.row_pad_bytes;
}

// Divides `blocks x slice bytes` among the causes. The caller has checked that the product of
// blocks, layers, sequences and slice bytes fits, and no part exceeds it.
void add_slice(Ledger& ledger, const SliceCase& slice) {
  const std::uint64_t rows_per_block = slice.track.rows_per_block;
  const std::uint64_t live = peak_rows(slice.stream, slice.request.context);
  const std::uint64_t needed_blocks = ceil_div(live, rows_per_block);
  const std::uint64_t slack_blocks = slice.blocks_per_sequence - needed_blocks;
  const std::uint64_t free_rows = needed_blocks * rows_per_block - live;
  const std::uint64_t copies = slice.request.num_sequences * slice.on_rank.layers;
  const auto add = [&](Cause cause, std::uint64_t on_rank, std::uint64_t whole) {
    ledger.add_share(cause, slice.subject,
                     {on_rank * copies, whole * copies, slice.request.tensor_parallel});
  };
  const TrackStream& r = slice.on_rank;
  const TrackStream& w = slice.whole;
  const std::uint64_t row_pad = slice.stream.row_pad_bytes;
  const RowCauses causes = row_causes(slice.stream.purpose);
  add(causes.payload, live * (r.payload_bytes / rows_per_block),
      live * (w.payload_bytes / rows_per_block));
  add(causes.scales, live * (r.scale_bytes / rows_per_block),
      live * (w.scale_bytes / rows_per_block));
  add(causes.padding, live * row_pad + needed_blocks * alignment_bytes(slice, r),
      live * row_pad + needed_blocks * alignment_bytes(slice, w));
  const auto row_of = [&](const TrackStream& bytes) {
    return (bytes.payload_bytes + bytes.scale_bytes) / rows_per_block + row_pad;
  };
  add(Cause::kBlockRounding, free_rows * row_of(r), free_rows * row_of(w));
  add(Cause::kWindowSlack, slack_blocks * r.slice_bytes(), slack_blocks * w.slice_bytes());
}

Status add_masks(Ledger& ledger, const EngineCase& engine_case) {
  const PlanRequest& request = engine_case.request;
  KVARTO_TRY(const std::vector<OwnedStream> streams,
             owned_streams(engine_case.model.groups, request.tensor_parallel));
  for (const OwnedStream& owned : streams) {
    if (owned.stream->lifetime.kind != Lifetime::Kind::kStep) continue;
    const RowCount count{.rows = peak_rows(*owned.stream, request.context),
                         .num_sequences = request.num_sequences,
                         .num_ranks = request.tensor_parallel};
    KVARTO_CHECK_OK(add_rows(ledger, owned, count, row_causes(owned.stream->purpose)));
  }
  return {};
}

// The tracks of one rank and of the whole model; they differ in bytes alone.
struct TrackPair {
  const Track& on_rank;
  const Track& whole;
};

// The squares of one track's streams: as many for every number of sequences and tokens.
Status add_squares(Ledger& ledger, const EngineCase& engine_case, const Track& on_rank) {
  for (const TrackStream& part : on_rank.streams) {
    const LayerGroup& group = engine_case.model.groups[part.group];
    const Stream& whole = group.streams[part.stream];
    Stream stream = whole;
    if (stream.shard == Shard::kHead) {
      for (Field& field : stream.fields) {
        field.heads = heads_on_rank(field.heads, engine_case.request.tensor_parallel);
      }
    }
    const auto bytes = checked_mul(squares_bytes(stream), part.layers);
    if (!bytes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("squares of stream {} overflow 64 bits", stream.name));
    }
    ledger.add(Cause::kMetadata,
               {.stream = whole.name,  // the ledger keeps a view of it
                .architecture = group.architecture,
                .layers = part.layers,
                .group = part.group},
               *bytes);
  }
  return {};
}

bool has_squares(const ModelSpec& model) {
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) {
      if (squares_bytes(stream) != 0) return true;
    }
  }
  return false;
}

// Puts one track's pool into the ledger and returns its blocks.
Result<std::uint64_t> add_track(Ledger& ledger, const EngineCase& engine_case,
                                const TrackPair& track) {
  const PlanRequest& request = engine_case.request;
  // A batch longer than the context never arrives.
  const std::uint64_t micro_batch = std::min(
      request.context, request.micro_batch == 0 ? kDefaultMicroBatch : request.micro_batch);
  const std::uint64_t per_sequence = peak_blocks(track.on_rank, request.context, micro_batch);
  const auto blocks = checked_mul(per_sequence, request.num_sequences);
  const auto metadata = blocks ? checked_mul(*blocks, kMetadataBytesPerBlock) : std::nullopt;
  if (!metadata) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("bookkeeping of {} sequences of {} blocks overflows 64 bits",
                            request.num_sequences, per_sequence));
  }
  KVARTO_TRY(const std::uint64_t storage, pool_bytes(track.on_rank, *blocks));
  KVARTO_CHECK_OK(pool_bytes(track.whole, *blocks));
  for (std::size_t i = 0; i < track.on_rank.streams.size(); ++i) {
    const TrackStream& on_rank = track.on_rank.streams[i];
    const LayerGroup& group = engine_case.model.groups[on_rank.group];
    const Stream& stream = group.streams[on_rank.stream];
    add_slice(ledger, {.request = request,
                       .stream = stream,
                       .track = track.on_rank,
                       .on_rank = on_rank,
                       .whole = track.whole.streams[i],
                       .subject = {.stream = stream.name,
                                   .architecture = group.architecture,
                                   .layers = on_rank.layers,
                                   .group = on_rank.group},
                       .blocks_per_sequence = per_sequence});
  }
  if (request.keeps_squares) {
    KVARTO_CHECK_OK(add_squares(ledger, engine_case, track.on_rank));
  }
  ledger.add(Cause::kPadding, kPool, storage - *blocks * track.on_rank.block_bytes);
  ledger.add(Cause::kMetadata, kPool, *metadata);
  return *blocks;
}

Result<EnginePlan> plan_kvarto(const EngineCase& engine_case) {
  const PlanRequest& request = engine_case.request;
  KVARTO_CHECK_OK(check_options(request));
  Ledger ledger;
  KVARTO_CHECK_OK(add_masks(ledger, engine_case));
  const std::uint64_t block_size = request.block_size == 0 ? kDefaultBlockSize : request.block_size;
  KVARTO_TRY(const std::vector<Track> tracks,
             make_tracks(engine_case.model, block_size, request.tensor_parallel));
  std::vector<Track> whole;
  if (request.tensor_parallel != 1) {
    KVARTO_TRY(whole, make_tracks(engine_case.model, block_size));
  }
  CheckedSum blocks;
  for (std::size_t i = 0; i < tracks.size(); ++i) {
    KVARTO_TRY(const std::uint64_t of_track,
               add_track(ledger, engine_case, {tracks[i], whole.empty() ? tracks[i] : whole[i]}));
    blocks.add(of_track);
  }
  if (blocks.has_overflow()) {
    return fail(ErrorCode::kInvalidArgument, "the blocks of all tracks overflow 64 bits");
  }
  EnginePlan plan;
  if (request.keeps_squares && !has_squares(engine_case.model)) {
    plan.notes.emplace_back("no stream of K or V is f16, so that arithmetic in f16 cannot run");
  }
  KVARTO_CHECK_OK(std::move(ledger).finish(plan));
  set_concurrency(plan, request);
  plan.blocks = blocks.total();
  if (plan.max_concurrency) {
    const double fitting = static_cast<double>(blocks.total()) * *plan.max_concurrency /
                           static_cast<double>(request.num_sequences);
    plan.blocks =
        fitting < kMaxBlocks ? std::optional(static_cast<std::uint64_t>(fitting)) : std::nullopt;
  }
  return plan;
}

constexpr std::array<std::string_view, 1> kProfiles = {"1"};

}  // namespace

const Engine kKvartoEngine = {"kvarto", kProfiles, &plan_kvarto};

}  // namespace kvarto
