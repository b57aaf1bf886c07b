#include "plan/engines/paged_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/checked.h"

namespace kvarto {
namespace {

// Streams that the paged engines know, by name.
constexpr std::array<std::string_view, 9> kKnownStreams = {
    "k",          "v",     "latent",           "index_key", "window_kv", "compressed_kv",
    "conv_state", "state", "compressor_state",
};
constexpr std::string_view kIndexState = "index_compressor_state";

bool is_known(std::string_view name) {
  return name == kIndexState ||
         std::find(kKnownStreams.begin(), kKnownStreams.end(), name) != kKnownStreams.end();
}

PageKind page_kind(const Stream& stream) {
  switch (stream.lifetime.kind) {
    case Lifetime::Kind::kWindow:
      return PageKind::kWindow;
    case Lifetime::Kind::kChunk:
      return PageKind::kChunk;
    case Lifetime::Kind::kConstant:
      return PageKind::kState;
    default:
      return PageKind::kFull;
  }
}

// K and V of one layer lie in one page, as do the parts of a recurrent state.
bool shares_page(const PagedLayers& layers, const OwnedStream& owned) {
  const Stream& stream = *owned.stream;
  const OwnedStream& first = layers.streams.front();
  return first.group == owned.group && layers.kind == page_kind(stream) &&
         layers.tokens_per_row == stream.tokens_per_row &&
         layers.is_indexer == (stream.purpose == Purpose::kIndexer);
}

}  // namespace

Result<std::vector<PagedLayers>> paged_layers(const EngineCase& engine_case,
                                              std::string_view engine) {
  std::vector<PagedLayers> all;
  const auto add_groups = [&](std::span<const LayerGroup> groups, bool is_draft) -> Status {
    KVARTO_TRY(std::vector<OwnedStream> streams,
               owned_streams(groups, engine_case.request.tensor_parallel));
    const std::size_t first = all.size();
    for (OwnedStream& owned : streams) {
      const Stream& stream = *owned.stream;
      if (!is_known(stream.name)) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("engine {}: stream {} of architecture {}, which it does not have",
                                engine, stream.name, owned.group->architecture));
      }
      if (is_draft) owned.group_index += engine_case.model.groups.size();
      auto same = std::find_if(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(),
                               [&](const PagedLayers& l) { return shares_page(l, owned); });
      if (same == all.end()) {
        all.push_back({.kind = page_kind(stream),
                       .window = stream.lifetime.tokens,
                       .tokens_per_row = stream.tokens_per_row,
                       .num_layers = owned.num_layers,
                       .is_draft = is_draft,
                       .is_indexer = stream.purpose == Purpose::kIndexer,
                       .is_latent = stream.name == "latent"});
        same = std::prev(all.end());
      }
      same->row_bytes += owned.on_rank.total();
      same->streams.push_back(owned);
    }
    return {};
  };
  KVARTO_CHECK_OK(add_groups(engine_case.model.groups, false));
  KVARTO_CHECK_OK(add_groups(engine_case.draft_groups, true));
  return all;
}

bool has_compressed_rows(const std::vector<PagedLayers>& layers) {
  return std::any_of(layers.begin(), layers.end(), [](const PagedLayers& l) {
    return std::any_of(l.streams.begin(), l.streams.end(), [](const OwnedStream& owned) {
      return owned.stream->name == "compressed_kv" || owned.stream->name == "window_kv";
    });
  });
}

Status add_live_rows(Ledger& ledger, const PagedLayers& layers, const RowsEntry& entry) {
  for (const OwnedStream& owned : layers.streams) {
    const RowCauses causes =
        layers.is_draft ? only_cause(Cause::kDraft) : row_causes(owned.stream->purpose);
    KVARTO_CHECK_OK(add_rows(
        ledger, owned,
        {.rows = entry.rows, .num_sequences = entry.num_sequences, .num_ranks = entry.num_ranks},
        causes));
  }
  return {};
}

Status add_rows_as(Ledger& ledger, const PagedLayers& layers, const RowsEntry& entry, Cause cause) {
  if (entry.rows == 0) return {};
  for (const OwnedStream& owned : layers.streams) {
    KVARTO_CHECK_OK(add_rows(
        ledger, owned,
        {.rows = entry.rows, .num_sequences = entry.num_sequences, .num_ranks = entry.num_ranks},
        only_cause(layers.is_draft ? Cause::kDraft : cause)));
  }
  return {};
}

void add_flat(Ledger& ledger, const PagedLayers& layers, std::uint64_t bytes, Cause cause) {
  ledger.add(cause, subject_of(layers.streams.front()), bytes);
}

Status check_gpu_types(const PlanRequest& request, std::string_view engine) {
  for (const std::string& name : {request.types.key, request.types.value}) {
    const auto codec = codec_from_name(name);
    if (!codec) continue;  // auto, fp8, fp8_ds_mla; unknown names were refused before
    const CodecInfo& info = codec_info(*codec);
    if (info.source.substr(0, 4) == "ggml") {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("engine {}: cache type {}, expected one of auto bf16 f16 f32 fp8 "
                              "fp8_e4m3 fp8_e5m2 int8 int4 nvfp4 mxfp4 fp8_ds_mla",
                              engine, name));
    }
  }
  if (request.types.key != request.types.value) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("engine {}: K type {} and V type {}, expected one type for both",
                            engine, request.types.key, request.types.value));
  }
  return {};
}

std::string gib(double bytes) { return fmt::format("{:.2f}", bytes / (1024.0 * 1024.0 * 1024.0)); }

}  // namespace kvarto
