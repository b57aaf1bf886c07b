// What KvCache::create does: validate, size, and only then allocate.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "cache/kv_cache_impl.h"
#include "cache/model_check.h"
#include "kernels/dispatch.h"
#include "kvarto/layout_convert.h"

namespace kvarto {
namespace {

#ifdef NDEBUG
constexpr bool kIsDebugBuild = false;
#else
constexpr bool kIsDebugBuild = true;
#endif

Status invalid(std::string_view option, std::uint64_t found, std::string_view expected) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("cache options: {}: {}, expected {}", option, found, expected));
}

Status check_options(const CacheOptions& options) {
  // More slots than any sequence id can name.
  constexpr std::uint64_t kMaxSlots = std::uint64_t{1} << 31;
  if (options.num_sequences == 0 || options.num_sequences > kMaxSlots) {
    return invalid("num_sequences", options.num_sequences, "1 to 2^31");
  }
  if (options.context == 0 || options.context > (std::uint64_t{1} << 48)) {
    return invalid("context", options.context, "1 to 2^48 tokens");
  }
  if (options.layout > Layout::kHardware) {
    return invalid("layout", static_cast<std::uint64_t>(options.layout), "one of Layout");
  }
  if (options.micro_batch == 0) return invalid("micro_batch", 0, "at least 1 token");
  if (options.num_snapshots > (1u << 20)) {
    return invalid("num_snapshots", options.num_snapshots, "at most 2^20");
  }
  return {};
}

// Blocks and table entries of one track.
struct StoreSize {
  std::uint64_t num_blocks = 0;
  std::uint64_t entries_per_sequence = 0;
  std::uint64_t num_entries = 0;
  std::uint64_t storage_bytes = 0;
};

Result<StoreSize> size_store(const Track& track, const CacheOptions& options,
                             std::size_t track_index) {
  StoreSize size;
  size.entries_per_sequence = track.lifetime.kind == Lifetime::Kind::kConstant
                                  ? 1 + options.num_snapshots
                                  : peak_blocks(track, options.context, options.micro_batch);
  const auto entries = checked_mul(size.entries_per_sequence, options.num_sequences);
  if (!entries) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cache options: {} sequences of {} blocks overflow 64 bits",
                            options.num_sequences, size.entries_per_sequence));
  }
  size.num_entries = *entries;
  size.num_blocks =
      options.blocks_per_track.empty() ? *entries : options.blocks_per_track[track_index];
  if (size.num_blocks >= kNoBlock) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cache options: track {} has {} blocks, expected fewer than 2^32 - 1; "
                            "a larger block_size has fewer",
                            track_index, size.num_blocks));
  }
  KVARTO_TRY(size.storage_bytes, pool_bytes(track, size.num_blocks));
  return size;
}

// The streams of one step, without their bytes yet.
Result<std::vector<StepStore>> size_step_stores(const ModelSpec& model,
                                                const CacheOptions& options) {
  std::vector<StepStore> stores;
  for (std::size_t g = 0; g < model.groups.size(); ++g) {
    for (std::size_t s = 0; s < model.groups[g].streams.size(); ++s) {
      const Stream& stream = model.groups[g].streams[s];
      if (stream.owner_layer || stream.lifetime.kind != Lifetime::Kind::kStep) continue;
      const std::uint64_t row = row_bytes(stream_on_rank(stream, options.tensor_parallel)).total();
      const auto bytes = checked_mul(row, peak_rows(stream, options.context));
      const auto copies = checked_mul(options.num_sequences, model.groups[g].layers.size());
      const auto total = bytes && copies ? checked_mul(*bytes, *copies) : std::nullopt;
      if (!total) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("stream {}: rows of {} sequences overflow 64 bits", stream.name,
                                options.num_sequences));
      }
      stores.push_back({.group = static_cast<std::uint32_t>(g),
                        .stream = static_cast<std::uint32_t>(s),
                        .bytes_per_sequence = *bytes,
                        .total_bytes = *total});
    }
  }
  return stores;
}

// Bytes of the squares of all streams.
CheckedSum squares_bytes_of(const ModelSpec& model, const CacheOptions& options) {
  CheckedSum bytes;
  if (!options.keeps_squares) return bytes;
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) {
      if (stream.owner_layer) continue;
      bytes.add_product(squares_bytes(stream_on_rank(stream, options.tensor_parallel)),
                        group.layers.size());
    }
  }
  return bytes;
}

Status check_memory(const std::vector<StoreSize>& sizes, const std::vector<StepStore>& step_stores,
                    CheckedSum bytes, const CacheOptions& options) {
  for (const StepStore& store : step_stores) bytes.add(store.total_bytes);
  for (const StoreSize& size : sizes) {
    bytes.add(size.storage_bytes);
    bytes.add_product(size.num_blocks, kMetadataBytesPerBlock - sizeof(std::uint32_t));
    bytes.add_product(size.num_entries, sizeof(std::uint32_t));
  }
  const std::uint64_t record_bytes = sizeof(Sequence) + sizes.size() * sizeof(TableRange) +
                                     options.num_snapshots * sizeof(std::uint64_t);
  bytes.add_product(options.num_sequences, record_bytes);
  const std::uint64_t available = available_memory_bytes();
  if (bytes.has_overflow() || bytes.total() > available) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("cache of {} sequences of {} tokens: needs {} bytes, {} are available",
                            options.num_sequences, options.context,
                            bytes.has_overflow() ? std::string("more than 2^64")
                                                 : std::to_string(bytes.total()),
                            available));
  }
  return {};
}

Result<TrackStore> make_store(const Track& track, const StoreSize& size,
                              const CacheOptions& options) {
  KVARTO_TRY(BlockPool pool, BlockPool::create(size.num_blocks));
  KVARTO_TRY(Storage storage, Storage::map(size.storage_bytes, options.wants_huge_pages));
  if (options.is_populated) KVARTO_CHECK_OK(storage.populate());
  return TrackStore{.track = track,
                    .pool = std::move(pool),
                    .storage = std::move(storage),
                    .slices = {},
                    .tables = std::vector<std::uint32_t>(size.num_entries, kNoBlock),
                    .table_entries = size.entries_per_sequence};
}

}  // namespace

Stream stream_on_rank(Stream stream, std::uint32_t tensor_parallel) {
  if (stream.shard == Shard::kHead) {
    for (Field& field : stream.fields) field.heads = heads_on_rank(field.heads, tensor_parallel);
  }
  return stream;
}

void KvCache::Impl::add_slices(std::uint32_t track_index, std::uint64_t num_blocks) {
  TrackStore& store = stores[track_index];
  std::uint64_t offset = 0;
  for (const TrackStream& part : store.track.streams) {
    const LayerGroup& group = model.groups[part.group];
    const Stream& whole = group.streams[part.stream];
    const Stream on_rank = stream_on_rank(whole, options.tensor_parallel);
    const SliceShape shape = slice_shape(on_rank, is_key_stream(group, whole), options.layout,
                                         store.track.rows_per_block);
    const bool has_squares = options.keeps_squares && squares_bytes(on_rank) != 0;
    for (const std::uint32_t layer : group.layers) {
      store.slices.push_back(StreamId{static_cast<std::uint32_t>(slices.size())});
      slices.push_back({.track = track_index,
                        .group = part.group,
                        .stream = part.stream,
                        .layer = layer,
                        .offset_bytes = offset,
                        .slice_bytes = part.slice_bytes(),
                        .shape = shape});
      squares.push_back(has_squares ? ElementSquares(shape.fields[0].heads, shape.fields[0].width)
                                    : ElementSquares());
      offset += part.slice_bytes() * num_blocks;
    }
  }
}

Result<KvCache> KvCache::create(ModelSpec model, const CacheOptions& requested) {
  CacheOptions options = requested;
  KVARTO_CHECK_OK(check_options(options));
  KVARTO_CHECK_OK(check_model(model));
  if (!options.poisons_freed_blocks) options.poisons_freed_blocks = kIsDebugBuild;
  // Whole tiles, so that the hardware layout is the same as with blocks.
  options.micro_batch = std::min(options.micro_batch, options.context);
  if (options.is_contiguous) options.block_size = round_up(options.context, kTileRows);
  KVARTO_TRY(std::vector<Track> tracks,
             make_tracks(model, options.block_size, options.tensor_parallel));
  if (!options.blocks_per_track.empty() && options.blocks_per_track.size() != tracks.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cache options: blocks_per_track has {} entries, expected one for each "
                            "of {} tracks",
                            options.blocks_per_track.size(), tracks.size()));
  }
  std::vector<StoreSize> sizes;
  for (std::size_t i = 0; i < tracks.size(); ++i) {
    KVARTO_TRY(const StoreSize size, size_store(tracks[i], options, i));
    sizes.push_back(size);
  }
  KVARTO_TRY(std::vector<StepStore> step_stores, size_step_stores(model, options));
  KVARTO_CHECK_OK(check_memory(sizes, step_stores, squares_bytes_of(model, options), options));

  KVARTO_TRY(const KernelTable* kernels, active_kernels());
  auto impl = std::make_unique<Impl>();
  impl->kernels = kernels;
  impl->model = std::move(model);
  impl->options = options;
  impl->tracks = std::move(tracks);
  impl->append_plans.resize(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    KVARTO_TRY(TrackStore store, make_store(impl->tracks[i], sizes[i], options));
    impl->stores.push_back(std::move(store));
    impl->add_slices(static_cast<std::uint32_t>(i), sizes[i].num_blocks);
  }
  for (StepStore& store : step_stores) store.bytes.resize(store.total_bytes);
  impl->step_stores = std::move(step_stores);
  impl->sequences.resize(options.num_sequences);
  for (Sequence& sequence : impl->sequences) {
    sequence.ranges.resize(sizes.size());
    sequence.snapshot_tokens.reserve(options.num_snapshots);
  }
  // Slots are taken from the end: the first sequence gets slot 0.
  for (std::uint64_t slot = options.num_sequences; slot > 0; --slot) {
    impl->free_slots.push_back(static_cast<std::uint32_t>(slot - 1));
  }
  return KvCache(std::move(impl));
}

}  // namespace kvarto
