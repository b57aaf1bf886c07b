#include "profile/read_map.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/checked.h"
#include "cache/code_tiles.h"

namespace kvarto {
namespace {

constexpr std::uint64_t kLineBytes = 64;

// Rows [first, end) of one block.
struct Piece {
  std::uint32_t block = 0;
  std::uint64_t first = 0;
  std::uint64_t end = 0;
};

std::uint64_t row_bytes_of(const StreamReads& reads) {
  const StreamView& stream = reads.stream;
  if (reads.row_bytes != 0) return reads.row_bytes;
  return codec_bytes(stream.codec, stream.width).total() * stream.heads;
}

std::vector<Piece> pieces_of(const StreamReads& reads) {
  std::vector<ReadRun> runs(reads.runs.begin(), reads.runs.end());
  std::sort(runs.begin(), runs.end(), [](const ReadRun& a, const ReadRun& b) {
    return a.sequence != b.sequence ? a.sequence < b.sequence : a.first_row < b.first_row;
  });
  std::vector<Piece> pieces;
  const std::uint64_t per_block = reads.rows_per_block;
  for (const ReadRun& run : runs) {
    const SequenceView& sequence = reads.sequences[run.sequence];
    const std::uint64_t run_end = run.first_row + run.num_rows;
    for (std::uint64_t row = run.first_row; row < run_end;) {
      const std::uint64_t index = row / per_block;
      const std::uint64_t end = std::min(run_end, (index + 1) * per_block);
      const std::uint32_t block = sequence.block_table[index - sequence.first_block];
      const std::uint64_t first = row % per_block;
      // Two work items may divide a block.
      if (!pieces.empty() && pieces.back().block == block && pieces.back().end == first) {
        pieces.back().end = first + end - row;
      } else {
        pieces.push_back({block, first, first + end - row});
      }
      row = end;
    }
  }
  return pieces;
}

// Bytes [begin, end) of rows of one head (of all heads where a row holds them side by side) from
// the begin of the block's slice. Any row of a transposed tile touches every line of the tile.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

bool is_tiled(RowOrder order) {
  return order == RowOrder::kHeadTiles || order == RowOrder::kHeadValueTiles;
}

std::optional<CodeTiles> code_tiles_of(const StreamView& stream) {
  const auto format = code_format(stream.codec, stream.width);
  if (!is_tiled(stream.layout.order) || !format.has_value()) return std::nullopt;
  const std::uint64_t rows =
      stream.layout.head_stride_bytes / codec_bytes(stream.codec, stream.width).payload;
  return CodeTiles{*format, stream.layout, stream.heads, stream.width, rows};
}

// The scales behind tiles of codes.
Extent scale_extent_of(const CodeTiles& tiles, const Piece& piece, std::uint32_t head) {
  const std::uint64_t base = tiles.scales_begin(head);
  return {base + tiles.format.scales_bytes(piece.first / kTileRows * kTileRows),
          base + tiles.format.scales_bytes(round_up(piece.end, kTileRows))};
}

Extent extent_of(const StreamView& stream, const Piece& piece, std::uint32_t head) {
  const StreamLayout& layout = stream.layout;
  if (layout.order == RowOrder::kRowHead) {
    return {piece.first * layout.row_stride_bytes, piece.end * layout.row_stride_bytes};
  }
  const std::uint64_t base = head * layout.head_stride_bytes;
  const std::uint64_t rows = is_tiled(layout.order) ? kTileRows : 1;
  return {base + piece.first / rows * layout.row_stride_bytes,
          base + ceil_div(piece.end, rows) * layout.row_stride_bytes};
}

std::uint64_t num_extents(const StreamView& stream) {
  return stream.layout.order == RowOrder::kRowHead ? 1 : stream.heads;
}

std::uint64_t lines_of(const StreamView& stream, const Piece& piece) {
  std::uint64_t lines = 0;
  std::uint64_t next_line = 0;
  const auto add = [&](const Extent& extent) {
    const std::uint64_t first = std::max(next_line, extent.begin / kLineBytes);
    next_line = std::max(next_line, ceil_div(extent.end, kLineBytes));
    lines += next_line - std::min(first, next_line);
  };
  const std::uint64_t num = num_extents(stream);
  for (std::uint32_t head = 0; head < num; ++head) add(extent_of(stream, piece, head));
  const std::optional<CodeTiles> tiles = code_tiles_of(stream);
  if (tiles.has_value()) {
    for (std::uint32_t head = 0; head < num; ++head) add(scale_extent_of(*tiles, piece, head));
  }
  return lines;
}

std::int64_t power_of_two(std::int64_t distance) {
  if (distance == 0) return 0;
  const auto size = static_cast<std::uint64_t>(distance < 0 ? -distance : distance);
  const auto rounded = static_cast<std::int64_t>(std::bit_ceil(size));
  return distance < 0 ? -rounded : rounded;
}

const char* axes_of(RowOrder order) {
  switch (order) {
    case RowOrder::kRowHead:
      return "[row][head][element]";
    case RowOrder::kHeadRow:
      return "[head][row][element]";
    case RowOrder::kHeadTiles:
      return "[head][row / 16][element][row % 16]";
    case RowOrder::kHeadValueTiles:
      return "[head][row / 16][element / 16][row % 16][element % 16]";
  }
  return "";
}

// Overwrites one row of one block.
void poison_row(const StreamReads& reads, std::byte* slice, std::uint64_t row) {
  const StreamView& stream = reads.stream;
  const StreamLayout& layout = stream.layout;
  const std::uint64_t head_bytes = row_bytes_of(reads) / stream.heads;  // all fields of a row
  if (const std::optional<CodeTiles> tiles = code_tiles_of(stream)) {
    const std::vector<std::byte> image(head_bytes, std::byte{0xFF});
    for (std::uint32_t head = 0; head < stream.heads; ++head) {
      store_code_row(tiles->row_at(row, head, slice), image.data());
    }
    return;
  }
  for (std::uint32_t head = 0; head < stream.heads; ++head) {
    std::byte* begin = slice + head * layout.head_stride_bytes;
    if (layout.order != RowOrder::kHeadTiles) {
      std::memset(begin + row * layout.row_stride_bytes, 0xFF, head_bytes);
      continue;
    }
    const std::uint64_t element_bytes = head_bytes / stream.width;  // of a tile: no scales
    begin += row / kTileRows * layout.row_stride_bytes + row % kTileRows * element_bytes;
    for (std::uint32_t i = 0; i < stream.width; ++i) {
      std::memset(begin + i * kTileRows * element_bytes, 0xFF, element_bytes);
    }
  }
}

}  // namespace

void describe_reads(const StreamReads& reads, StreamLayoutReport& report) {
  const StreamView& stream = reads.stream;
  report.axes = axes_of(stream.layout.order);
  std::uint64_t rows = 0;
  std::uint64_t lines = 0;
  std::uint64_t run_rows = 0;
  std::uint64_t run_end = 0;
  for (const Piece& piece : pieces_of(reads)) {
    rows += piece.end - piece.first;
    lines += lines_of(stream, piece);
    const Extent extent = extent_of(stream, piece, 0);
    const std::uint64_t begin = piece.block * stream.block_stride_bytes + extent.begin;
    if (run_rows != 0 && begin != run_end) {
      ++report.run_rows[run_rows];
      ++report.jumps[power_of_two(static_cast<std::int64_t>(begin - run_end))];
      run_rows = 0;
    }
    run_rows += piece.end - piece.first;
    run_end = piece.block * stream.block_stride_bytes + extent.end;
  }
  if (run_rows != 0) ++report.run_rows[run_rows];
  const std::uint64_t bytes = rows * row_bytes_of(reads);
  if (lines != 0) {
    report.line_utilisation = static_cast<double>(bytes) / static_cast<double>(lines * kLineBytes);
  }
}

std::uint64_t poison_unread(const StreamReads& reads, std::byte* base, std::uint64_t num_blocks) {
  const std::uint64_t per_block = reads.rows_per_block;
  // Several runs may lie in one block.
  std::vector<std::uint8_t> is_read(num_blocks * per_block, 0);
  std::vector<std::uint8_t> is_touched(num_blocks, 0);
  for (const Piece& piece : pieces_of(reads)) {
    const auto begin = is_read.begin() + static_cast<std::ptrdiff_t>(piece.block * per_block);
    std::fill(begin + static_cast<std::ptrdiff_t>(piece.first),
              begin + static_cast<std::ptrdiff_t>(piece.end), std::uint8_t{1});
    is_touched[piece.block] |= piece.end > piece.first ? 1 : 0;
  }
  const std::uint64_t stride = reads.stream.block_stride_bytes;
  std::uint64_t rows = 0;
  for (std::uint64_t block = 0; block < num_blocks; ++block) {
    std::byte* slice = base + block * stride;
    if (is_touched[block] == 0) {
      std::memset(slice, 0xFF, stride);
      rows += per_block;
      continue;
    }
    for (std::uint64_t row = 0; row < per_block; ++row) {
      if (is_read[block * per_block + row] != 0) continue;
      poison_row(reads, slice, row);
      ++rows;
    }
  }
  return rows;
}

}  // namespace kvarto
