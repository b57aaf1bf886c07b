// Streams: what every attention architecture is made of.
//
// A stream is a sequence of equal rows that are born as tokens arrive. It has four properties:
// size (fields, codec, tokens per row), layout (chosen later, see layout.h), lifetime (birth and
// death) and access (which rows one decode step reads). Plain data; nothing here knows the name
// of an architecture.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvarto/codec.h"

namespace kvarto {

// Which request of the user a field's codec follows (see CacheTypes).
enum class CodecRole : std::uint8_t {
  kKey,    // the type of K
  kValue,  // the type of V
  kIndex,  // the type of index keys: `native` unless the user says otherwise
  kFixed,  // always `native`, e.g. recurrent states
};

// `heads` vectors of `width` elements each.
struct Field {
  std::string name;
  std::uint32_t heads = 1;
  std::uint32_t width = 0;
  CodecRole role = CodecRole::kKey;
  // The codec for role kFixed, and for every field under the type `auto`: the format of the
  // model's own release.
  Codec native = Codec::kBF16;
  // The codec under `fp8_ds_mla`, where the stream has such a form (Stream::has_packed_form).
  Codec packed = Codec::kBF16;
  // For roles kIndex and kFixed: takes the type of K instead of `native` where that type has 16 or
  // 32 bits and the user names no index type. Index keys and summaries of unquantised keys.
  bool follows_wide_key = false;
  // The codec in force; set by with_types().
  Codec codec = Codec::kBF16;
  friend bool operator==(const Field&, const Field&) = default;
};

struct Lifetime {
  enum class Kind : std::uint8_t {
    kNever,     // a row lives as long as its sequence
    kWindow,    // dies when `tokens` newer tokens exist: the last `tokens` rows are visible
    kChunk,     // dies when its chunk of `tokens` tokens is over
    kTtl,       // dies `tokens` tokens after its birth
    kKept,      // a policy keeps at most `tokens` rows
    kStep,      // lives for one decode step
    kConstant,  // one row per sequence, from its first token to its end
  };
  Kind kind = Kind::kNever;
  std::uint64_t tokens = 0;
  friend bool operator==(const Lifetime&, const Lifetime&) = default;
};

struct Access {
  enum class Kind : std::uint8_t {
    kAll,     // every resident row
    kWindow,  // the last `count` rows
    kTopK,    // `count` rows chosen by an indexer
    kRatio,   // `ratio` of the blocks, chosen by a predictor
    kBlocks,  // `count` rows in whole blocks, chosen by block summaries
    kNone,    // not read by the step's attention
  };
  Kind kind = Kind::kAll;
  std::uint64_t count = 0;
  double ratio = 1.0;
  // Rows that cover any of the newest `skip_tokens` tokens are not read (another stream is).
  std::uint64_t skip_tokens = 0;
  // In rows: kWindow begins at a multiple of it; kTopK adds the rows behind the last multiple.
  std::uint64_t align_rows = 1;
  friend bool operator==(const Access&, const Access&) = default;
};

// To which lengths a stream can be cut back.
struct Truncate {
  enum class Kind : std::uint8_t {
    kAny,       // to every length
    kResident,  // only to a length whose visible rows are all still held
    kBoundary,  // only to multiples of `tokens`
    kSnapshot,  // only to lengths of which a snapshot was taken
  };
  Kind kind = Kind::kAny;
  std::uint64_t tokens = 0;
  friend bool operator==(const Truncate&, const Truncate&) = default;
};

// How tensor parallelism divides a stream.
enum class Shard : std::uint8_t { kHead, kReplicate };

// What a byte of a stream is for; becomes the cause of its bytes in the ledger.
enum class Purpose : std::uint8_t {
  kAttention,  // keys, values, latents: ledger causes payload and scales
  kIndexer,    // index keys
  kState,      // recurrent and compressor states
  kMetadata,   // block summaries, statistics, positions
  kMask,       // masks of one step
};

struct Stream {
  std::string name;  // "k", "v", "latent", "index_key", ...
  std::vector<Field> fields;
  std::uint64_t tokens_per_row = 1;
  // A row is born only when its tokens are this many tokens old (KIVI: when they leave the tail).
  std::uint64_t birth_delay_tokens = 0;
  Lifetime lifetime;
  Access access;
  Truncate truncate;
  Shard shard = Shard::kHead;
  Purpose purpose = Purpose::kAttention;

  // The stream that a reducer reads to bear this one's rows ("" = born with its token).
  std::string born_from;
  // The layer whose rows this layer reads; unset = the layer owns its rows. A borrowed stream
  // takes no bytes, but its reads count.
  std::optional<std::uint32_t> owner_layer;
  // The layer whose selection this layer reuses (shared indexers).
  std::optional<std::uint32_t> selection_layer;

  // Constant streams that are a ring of recent inputs (convolutions, compressors): its rows, one a
  // token; engines that speculate lengthen it. 0 = not a ring.
  std::uint32_t ring_rows = 0;

  // The `fp8_ds_mla` form: whether there is one, and its row and block padding in bytes.
  bool has_packed_form = false;
  std::uint32_t packed_row_pad_bytes = 0;
  std::uint32_t packed_block_align_bytes = 1;
  bool packed_scales_in_footer = false;
  // Under every type, scales follow the rows of a block (index keys).
  bool always_scales_in_footer = false;

  // In force after with_types(): bytes of padding at a row's end, alignment of a block, and
  // whether all scales of a block follow its rows instead of lying inside them.
  std::uint32_t row_pad_bytes = 0;
  std::uint32_t block_align_bytes = 1;
  bool scales_in_footer = false;
  friend bool operator==(const Stream&, const Stream&) = default;
};

// Bytes of one row of a stream with the codecs in force, all heads.
struct RowBytes {
  std::uint64_t payload = 0;
  std::uint64_t scales = 0;
  std::uint64_t padding = 0;
  [[nodiscard]] std::uint64_t total() const { return payload + scales + padding; }
};
[[nodiscard]] RowBytes row_bytes(const Stream& stream);

// Bytes of one head of a field that lie in its row: all of them, or the elements alone where the
// scales of a block follow its rows.
[[nodiscard]] std::uint64_t head_bytes_in_row(const Stream& stream, const Field& field);

// Rows of `stream` that exist and are visible to the next step after `tokens` tokens: whole rows
// only (floor), at most the window. Borrowed streams have their owner's rows.
[[nodiscard]] std::uint64_t resident_rows(const Stream& stream, std::uint64_t tokens);

// The largest number of resident rows that any length up to `tokens` has: what an allocator
// without rounding must provide. Monotone in `tokens`.
[[nodiscard]] std::uint64_t peak_rows(const Stream& stream, std::uint64_t tokens);

// Rows that the attention of one decode step reads when `tokens` tokens are cached (the step's own
// token included).
[[nodiscard]] std::uint64_t rows_read(const Stream& stream, std::uint64_t tokens);

// The words of the JSON output: "window(128)", "topk(2048)", "boundary(4)", ...
[[nodiscard]] std::string to_string(const Lifetime& lifetime);
[[nodiscard]] std::string to_string(const Access& access);
[[nodiscard]] std::string to_string(const Truncate& truncate);

}  // namespace kvarto
