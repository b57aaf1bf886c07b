// The cache: storage of every stream of a model in blocks, and the sequences that grow in it.
//
// A token's rows go into the blocks of every track (tracks.h). `append` reserves them, `write`
// fills them, attention reads them through `view`. docs/cache.md follows one token through it all.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvarto/cache_view.h"
#include "kvarto/model_spec.h"
#include "kvarto/observe.h"
#include "kvarto/result.h"
#include "kvarto/tracks.h"

namespace kvarto {

struct CacheOptions {
  std::uint64_t block_size = kDefaultBlockSize;  // tokens
  // One block holds a whole sequence: block_size is the context rounded up to whole tiles.
  bool is_contiguous = false;
  Layout layout = Layout::kHardware;
  std::uint64_t num_sequences = 1;                 // alive at once
  std::uint64_t context = 0;                       // tokens, the longest a sequence may become
  std::uint64_t micro_batch = kDefaultMicroBatch;  // tokens, the most that one append adds
  std::uint32_t tensor_parallel = 1;               // storage of one rank of so many
  // Lengths of each sequence to which constant states can be cut back, at most (take_snapshot).
  std::uint64_t num_snapshots = 0;
  // Blocks of each track, in the order of make_tracks(). Empty = num_sequences x peak_blocks(),
  // with which an append never lacks a block.
  std::vector<std::uint64_t> blocks_per_track;
  bool wants_huge_pages = true;
  bool is_populated = false;  // touch all pages at once
  // Follow how large the elements of f16 rows are while rows are written, which f16 arithmetic
  // needs (AttentionOptions::arith): squares_bytes() more for every stream and layer, counted as
  // metadata.
  bool keeps_squares = false;
  // Fill freed blocks with NaN patterns, so that a read after free shows. Unset: in debug builds of
  // the library.
  std::optional<bool> poisons_freed_blocks;
};

// A sequence of one cache. Ids are never used twice, so that one that outlived its sequence is
// told apart.
enum class SequenceId : std::uint64_t {};

// One stream of one layer of one cache.
enum class StreamId : std::uint32_t {};

// The answer of a call that needs blocks.
enum class Grant : std::uint8_t {
  kDone,
  kNoFreeBlock,  // nothing has changed
};

// Rows in the caller's memory, [num_rows, heads, width] without gaps; the fields of a row of
// several fields lie one behind the other, [num_rows, (heads, width) of each field].
struct RowSource {
  Codec codec = Codec::kF32;  // kF32, kF16 or kBF16
  std::span<const std::byte> bytes;
};

// K and V of one layer for a batch of sequences. Owns the list that `cache().sequences` points to;
// block tables belong to the KvCache and are valid until its next change. Movable.
class LayerView {
 public:
  LayerView() = default;
  LayerView(CacheView cache, std::vector<SequenceView> sequences)
      : sequences_(std::move(sequences)), cache_(cache) {
    cache_.sequences = sequences_;
  }
  LayerView(const LayerView&) = delete;
  LayerView& operator=(const LayerView&) = delete;
  LayerView(LayerView&&) = default;
  LayerView& operator=(LayerView&&) = default;
  [[nodiscard]] const CacheView& cache() const { return cache_; }

 private:
  std::vector<SequenceView> sequences_;
  CacheView cache_;
};

// One track as allocated.
struct TrackUsage {
  Track track;
  std::uint64_t num_blocks = 0;
  std::uint64_t num_free = 0;
  std::uint64_t storage_bytes = 0;    // mapped
  std::uint64_t metadata_bytes = 0;   // pool, block tables and squares, as allocated
  std::uint64_t resident_bytes = 0;   // pages that the kernel has given, of storage_bytes
  std::uint64_t huge_page_bytes = 0;  // of resident_bytes, in huge pages
  bool is_huge_page_advised = false;  // asked for, and the kernel took the advice
};

// Const methods may be called concurrently. Methods that change sequences (all but `write`) need
// an owner alone; `write` to different sequences may run concurrently, and beside const methods on
// other sequences. SharedKvCache (shared_kv_cache.h) keeps these rules with a lock.
//
// Invariants:
// 1. A block's ref_count is the number of block tables and snapshots that name it.
// 2. A block named more than once is never written: who would append to it copies it first.
// 3. A block table has one entry for each block that holds a visible row, and none below the
//    first of them; entries are appended at the end and leave at the begin or by truncation.
// 4. Bytes of a row that its sequence has not written are zero, whoever had the block before; with
//    poisoning, bytes of freed blocks are 0xFF.
// 5. A call that fails, or answers kNoFreeBlock, has changed nothing.
//
// Storage and bookkeeping are allocated by create() and never grow: storage_bytes is pool_bytes(),
// metadata_bytes is kMetadataBytesPerBlock a block where blocks_per_track is empty, and what
// keeps_squares adds.
class KvCache {
 public:
  // Allocates storage for `model`, whose types are set (with_types). Errors: kInvalidArgument for
  // options that cannot be, naming option, value and expectation; kOutOfMemory with the bytes
  // asked for and those available; those of an instruction set that KVARTO_ISA
  // names and that cannot run.
  [[nodiscard]] static Result<KvCache> create(ModelSpec model, const CacheOptions& options);

  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;
  ~KvCache();

  // --- Sequences ------------------------------------------------------------------------------

  // A new sequence without tokens; nullopt if num_sequences are alive. O(tracks).
  [[nodiscard]] std::optional<SequenceId> create_sequence();

  // Adds `num_tokens` tokens: reserves their rows in every track, gives back the blocks that no
  // token from now on sees, and copies a last block that other sequences share. The new rows read
  // as zeros until written; constant states keep their values. Errors: kInvalidArgument for a dead
  // sequence, more than micro_batch tokens, or a length above the context.
  // O(tracks + blocks taken and given back).
  [[nodiscard]] Result<Grant> append(SequenceId sequence, std::uint64_t num_tokens);

  // Removes all rows but those in `rows` (ascending) from the track of `stream`, in all its streams
  // and layers: what an eviction policy decides. The rows are numbered anew from 0. Only for
  // lifetime `kept`. Errors: kInvalidArgument for a dead sequence, an unknown stream, a stream of
  // another lifetime, or rows that are not ascending and held. O(rows that move).
  [[nodiscard]] Result<Grant> keep_rows(SequenceId sequence, StreamId stream,
                                        std::span<const std::uint64_t> rows);

  // Gives back the blocks whose rows the last token does not see. After an append of several
  // tokens these are held until the next append, since the first of them still sees them.
  [[nodiscard]] Status trim(SequenceId sequence);

  // Cuts a sequence back to its first `num_tokens` tokens, which every stream's truncation rule
  // must allow (its present length and 0 always are). Constant states become those of the
  // snapshot, or zero at a boundary. Errors: kInvalidArgument for a dead sequence, a length above
  // the present one, or one that a stream does not allow; the message names that stream.
  [[nodiscard]] Status truncate(SequenceId sequence, std::uint64_t num_tokens);

  // A new sequence of the first `num_tokens` tokens of `parent`, sharing all its blocks; neither
  // ever sees what the other writes later. Lengths below the parent's follow the rules of
  // truncate(). nullopt if num_sequences are alive. Takes no block. O(blocks).
  [[nodiscard]] Result<std::optional<SequenceId>> fork(SequenceId parent, std::uint64_t num_tokens);

  // Keeps the constant states of the present length for truncate() and fork(). The oldest snapshot
  // gives way when num_snapshots are held. Takes no block now, and one of each constant track when
  // the sequence grows on. Errors: kInvalidArgument for a dead sequence or num_snapshots 0.
  [[nodiscard]] Status take_snapshot(SequenceId sequence);

  // Ends a sequence; blocks that nobody else names become free. Errors: kInvalidArgument for a
  // dead sequence.
  [[nodiscard]] Status free_sequence(SequenceId sequence);

  // Tokens of a sequence. Errors: kInvalidArgument for a dead one.
  [[nodiscard]] Result<std::uint64_t> num_tokens(SequenceId sequence) const;
  // Blocks of each track that a sequence names. Errors: kInvalidArgument for a dead one.
  [[nodiscard]] Result<std::vector<std::uint64_t>> num_blocks(SequenceId sequence) const;

  // --- Rows -----------------------------------------------------------------------------------

  // The stream `name` of `layer`; of its owner where the layer borrows it. Errors:
  // kInvalidArgument for a layer without such a stream.
  [[nodiscard]] Result<StreamId> find_stream(std::uint32_t layer, std::string_view name) const;

  // Writes rows [first_row, ...) of one stream, as many as `source` holds, encoded as its codec
  // says (docs/codecs.md). Row i is token i, or tokens [i x m, (i + 1) x m) where a row covers m
  // tokens; the row of a constant state is 0. Errors: kInvalidArgument for a dead sequence, an
  // unknown stream, bytes that are not whole rows, rows not appended or no longer held, and rows of
  // a block that a fork shares (append first); kUnsupported for codecs that are only counted (int2,
  // int32, bit, q8_KV).
  [[nodiscard]] Status write(SequenceId sequence, StreamId stream, std::uint64_t first_row,
                             const RowSource& source);

  // Reads rows back, widened to f32, [num_rows, heads, width] as in RowSource; `out` decides how
  // many. Errors: as write(), but shared blocks may be read.
  [[nodiscard]] Status read(SequenceId sequence, StreamId stream, std::uint64_t first_row,
                            std::span<float> out) const;

  // K and V for attention. `v` may be `k`: of a stream of several fields K is all of them, V the
  // first QueryShape::v_dim elements. Errors: kInvalidArgument for a dead sequence, an
  // unknown stream or streams of different tracks; kUnsupported for rows of more than two codecs.
  [[nodiscard]] Result<LayerView> view(StreamId k, StreamId v,
                                       std::span<const SequenceId> sequences) const;

  // The storage of one stream, for code that knows its rows. For a row of several fields of one
  // codec and one head each, their widths are added up. Errors: kInvalidArgument for an unknown
  // stream, kUnsupported for rows of several codecs.
  [[nodiscard]] Result<StreamView> stream_view(StreamId stream) const;
  // The same for one field of a row, numbered as in Stream::fields.
  [[nodiscard]] Result<StreamView> field_view(StreamId stream, std::uint32_t field) const;
  // The storage, writable. A caller that writes keeps invariant 2 itself: see is_writable(). The
  // squares of the stream are unknown from then on, so that f16 arithmetic refuses it.
  [[nodiscard]] std::byte* writable_base(StreamId stream);
  // Whether no other sequence or snapshot names the block of this row.
  [[nodiscard]] Result<bool> is_writable(SequenceId sequence, StreamId stream,
                                         std::uint64_t row) const;

  // Block table of a sequence in the track of `stream`. Valid until the next change. Errors:
  // kInvalidArgument for a dead sequence or an unknown stream.
  [[nodiscard]] Result<SequenceView> sequence_view(SequenceId sequence, StreamId stream) const;

  // Rows of a stream that lives for one step (masks): as many bytes as the longest sequence needs,
  // unspecified between steps. Errors: kInvalidArgument for a dead sequence or a layer without
  // such a stream.
  [[nodiscard]] Result<std::span<std::byte>> step_rows(SequenceId sequence, std::uint32_t layer,
                                                       std::string_view name);

  // --- Accounting -----------------------------------------------------------------------------

  [[nodiscard]] const ModelSpec& model() const;
  [[nodiscard]] const CacheOptions& options() const;
  [[nodiscard]] const std::vector<Track>& tracks() const;
  // The instruction set that converts and packs rows: "scalar", "avx2", "avx512".
  [[nodiscard]] std::string_view isa() const;
  // Storage and bookkeeping of all tracks and the rows of one step, as allocated. What one sequence
  // or the cache itself takes whatever their sizes (a few hundred bytes) is not counted.
  [[nodiscard]] std::uint64_t allocated_bytes() const;
  // Reads the kernel's tables; not for inner loops.
  [[nodiscard]] std::vector<TrackUsage> usage() const;
  // Tokens in whose multiples prefixes are shared by whole blocks: share_unit_tokens().
  [[nodiscard]] std::uint64_t share_unit() const;

  // Tells `observer` of every block taken and given back from now on; nullptr ends it.
  void set_observer(Observer* observer);

  // Checks invariants 1 and 3 and those of the pools. O(all blocks). Errors: kCorruptData.
  [[nodiscard]] Status verify() const;

 private:
  struct Impl;
  explicit KvCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvarto
