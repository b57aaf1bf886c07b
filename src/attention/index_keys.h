// Index keys as the kernels of the indexer want them: 16 rows of one sequence at a time.

#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_floats.h"
#include "kernels/kernels.h"
#include "kvarto/cache_view.h"
#include "kvarto/result.h"

namespace kvarto {

// 16 rows, ready to be scored.
struct KeySlab {
  AlignedFloats keys;  // f32 or int16, kIndexRows rows
  AlignedFloats rows;  // f32, before they become integers
  std::vector<std::byte> image;
  float units[kIndexRows] = {};
  float scales[kIndexRows] = {};
};

// Not empty rows [first, first + count), count <= kIndexRows, not across a multiple of kIndexRows.
struct KeyRun {
  std::uint64_t first = 0;
  std::uint32_t count = 0;
};

class IndexKeys {
 public:
  // Errors: kInvalidArgument and kUnsupported for keys that cannot be read; the message names the
  // field. Keeps references to both arguments.
  [[nodiscard]] static Result<IndexKeys> open(const CacheView& view, const KernelTable& kernels,
                                              bool is_int16);

  void reserve(KeySlab& slab) const;
  // Requires: reserve(slab), and a sequence that holds the rows.
  void fill(const SequenceView& sequence, KeyRun run, KeySlab& slab) const;

  // The bytes of a run that lie side by side from its first row on, to be prefetched.
  struct Bytes {
    const std::byte* begin = nullptr;
    std::size_t size = 0;
  };
  [[nodiscard]] Bytes bytes_at(const SequenceView& sequence, KeyRun run) const;

  [[nodiscard]] const IndexArithmetic& arithmetic() const { return *arithmetic_; }
  [[nodiscard]] std::uint32_t dim() const { return view_->k.width; }
  [[nodiscard]] std::uint64_t row_bytes() const { return payload_bytes_ + scale_bytes_; }

 private:
  // How rows become slabs.
  enum class Form : std::uint8_t {
    kCodes,  // e4m3 with one scale a row: as they are
    kRows,   // decoded one by one
    kTiles,  // of plain elements: transposed
  };
  // Rows of one block.
  struct Place {
    const std::byte* slice = nullptr;
    std::uint64_t row = 0;  // in the block
    std::uint32_t count = 0;
  };
  [[nodiscard]] Place place_of(const SequenceView& sequence, KeyRun run) const;
  [[nodiscard]] const std::byte* scale_at(const Place& place, std::uint32_t row) const;
  void fill_codes(const Place& place, std::uint32_t done, KeySlab& slab) const;
  void fill_rows(const Place& place, float* out, KeySlab& slab) const;
  void fill_tile(const Place& place, float* out, KeySlab& slab) const;

  const CacheView* view_ = nullptr;
  const KernelTable* kernels_ = nullptr;
  const IndexArithmetic* arithmetic_ = nullptr;
  Form form_ = Form::kRows;
  bool is_int16_ = false;
  bool is_scale_in_footer_ = false;
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t scale_bytes_ = 0;
};

}  // namespace kvarto
