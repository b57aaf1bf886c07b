#include "attention/index_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/index_kernels.h"

namespace kvarto {
namespace {

Status check_keys(const CacheView& view, const KernelTable& kernels) {
  const StreamView& keys = view.k;
  if (keys.base == nullptr)
    return fail(ErrorCode::kInvalidArgument, "index keys: base: found null");
  if (static_cast<int>(keys.codec) >= kNumCodecs) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("index keys: codec: found {}, expected one of Codec",
                            static_cast<unsigned>(keys.codec)));
  }
  if (keys.heads != 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("index keys: heads: found {}, expected 1", keys.heads));
  }
  if (keys.width == 0 || keys.width > kMaxIndexDim) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("index keys: width: found {}, expected 1 to {}", keys.width, kMaxIndexDim));
  }
  if (view.rows_per_block == 0) {
    return fail(ErrorCode::kInvalidArgument, "view: rows_per_block: found 0");
  }
  const CodecInfo& info = codec_info(keys.codec);
  if (kernels.decode[static_cast<std::size_t>(keys.codec)] == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("index keys: codec: found {}, which cannot be read", info.name));
  }
  if (!info.is_partial_group_allowed && keys.width % info.group_elements != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("index keys: width: found {}, expected a multiple of {} for {}",
                            keys.width, info.group_elements, info.name));
  }
  const bool is_plain = info.group_scale_bytes == 0 && info.element_bits >= 16;
  switch (keys.layout.order) {
    case RowOrder::kRowHead:
    case RowOrder::kHeadRow:
      return {};
    case RowOrder::kHeadTiles:
      if (is_plain && view.rows_per_block % kKeyTileRows == 0) return {};
      break;
    default:
      break;
  }
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("index keys: layout: order: found {} for {} in blocks of {} rows, "
                  "expected rows, or tiles of 16 rows of f32, f16 or bf16",
                  static_cast<unsigned>(keys.layout.order), info.name, view.rows_per_block));
}

}  // namespace

Result<IndexKeys> IndexKeys::open(const CacheView& view, const KernelTable& kernels,
                                  bool is_int16) {
  KVARTO_CHECK_OK(check_keys(view, kernels));
  const StreamView& stream = view.k;
  const CodecBytes bytes = codec_bytes(stream.codec, stream.width);
  IndexKeys keys;
  keys.view_ = &view;
  keys.kernels_ = &kernels;
  keys.is_int16_ = is_int16;
  keys.arithmetic_ = is_int16 ? &kernels.index.int16 : &kernels.index.f32;
  keys.payload_bytes_ = bytes.payload;
  keys.scale_bytes_ = bytes.scales;
  // Rows that are too short for their scales have them behind all rows of the block.
  keys.is_scale_in_footer_ = bytes.scales != 0 && !codec_info(stream.codec).has_scales_inside &&
                             stream.layout.row_stride_bytes < bytes.total();
  if (stream.layout.order == RowOrder::kHeadTiles) {
    keys.form_ = Form::kTiles;
  } else if (stream.codec == Codec::kFp8Scaled128 && bytes.scales == sizeof(float)) {
    keys.form_ = Form::kCodes;
  }
  return keys;
}

void IndexKeys::reserve(KeySlab& slab) const {
  const std::size_t floats = std::size_t{kIndexRows} * (dim() + 1);
  // Rows that a short run does not fill are multiplied too, and must be numbers.
  std::fill_n(slab.keys.reserve(floats), floats, 0.0f);
  std::fill_n(slab.rows.reserve(floats), floats, 0.0f);
  slab.image.resize(row_bytes());
}

IndexKeys::Place IndexKeys::place_of(const SequenceView& sequence, KeyRun run) const {
  const std::uint64_t rows = view_->rows_per_block;
  const std::uint64_t block = sequence.block_table[run.first / rows - sequence.first_block];
  const std::uint64_t row = run.first % rows;
  return {view_->k.base + block * view_->k.block_stride_bytes, row,
          static_cast<std::uint32_t>(std::min<std::uint64_t>(run.count, rows - row))};
}

const std::byte* IndexKeys::scale_at(const Place& place, std::uint32_t row) const {
  const std::uint64_t stride = view_->k.layout.row_stride_bytes;
  if (is_scale_in_footer_) {
    return place.slice + view_->rows_per_block * stride + (place.row + row) * scale_bytes_;
  }
  return place.slice + (place.row + row) * stride + payload_bytes_;
}

IndexKeys::Bytes IndexKeys::bytes_at(const SequenceView& sequence, KeyRun run) const {
  const Place place = place_of(sequence, run);
  const StreamLayout& layout = view_->k.layout;
  if (form_ == Form::kTiles) {
    return {place.slice + place.row / kKeyTileRows * layout.row_stride_bytes,
            layout.row_stride_bytes};
  }
  const bool is_whole_block = place.count == view_->rows_per_block;
  const std::uint64_t row_bytes =
      layout.row_stride_bytes + (is_whole_block && is_scale_in_footer_ ? scale_bytes_ : 0);
  return {place.slice + place.row * layout.row_stride_bytes, place.count * row_bytes};
}

void IndexKeys::fill(const SequenceView& sequence, KeyRun run, KeySlab& slab) const {
  float* rows = is_int16_ ? slab.rows.reserve(0) : slab.keys.reserve(0);
  std::uint32_t done = 0;
  while (done < run.count) {
    const Place place = place_of(sequence, {run.first + done, run.count - done});
    float* out = rows + std::size_t{done} * dim();
    switch (form_) {
      case Form::kCodes:
        fill_codes(place, done, slab);
        break;
      case Form::kRows:
        fill_rows(place, out, slab);
        break;
      case Form::kTiles:
        fill_tile(place, out, slab);
        break;
    }
    done += place.count;
  }
  if (form_ == Form::kCodes) return;
  if (is_int16_) {
    auto* integers = reinterpret_cast<std::int16_t*>(slab.keys.reserve(0));
    arithmetic_->round({rows, run.count, dim(), integers, slab.scales});
  } else {
    std::fill_n(slab.scales, run.count, 1.0f);
  }
}

void IndexKeys::fill_codes(const Place& place, std::uint32_t done, KeySlab& slab) const {
  const std::uint64_t stride = view_->k.layout.row_stride_bytes;
  const std::size_t row_bytes =
      is_int16_ ? (std::size_t{dim()} + 1) / 2 * 2 * sizeof(std::int16_t) : dim() * sizeof(float);
  FillIndexArgs args;
  args.codes = place.slice + place.row * stride;
  args.stride_bytes = stride;
  args.count = place.count;
  args.dim = dim();
  args.out = reinterpret_cast<std::byte*>(slab.keys.reserve(0)) + done * row_bytes;
  args.units = slab.units;
  arithmetic_->fill_e4m3(args);
  for (std::uint32_t row = 0; row < place.count; ++row) {
    float scale = 0;
    std::memcpy(&scale, scale_at(place, row), sizeof scale);
    slab.scales[done + row] = scale * slab.units[row];
  }
}

void IndexKeys::fill_rows(const Place& place, float* out, KeySlab& slab) const {
  const DecodeFunction decode = kernels_->decode[static_cast<std::size_t>(view_->k.codec)];
  const std::uint64_t stride = view_->k.layout.row_stride_bytes;
  for (std::uint32_t row = 0; row < place.count; ++row, out += dim()) {
    const std::byte* from = place.slice + (place.row + row) * stride;
    if (is_scale_in_footer_) {
      std::memcpy(slab.image.data(), from, payload_bytes_);
      std::memcpy(slab.image.data() + payload_bytes_, scale_at(place, row), scale_bytes_);
      from = slab.image.data();
    }
    decode(from, out, dim());
  }
}

void IndexKeys::fill_tile(const Place& place, float* out, KeySlab& slab) const {
  const DecodeFunction decode = kernels_->decode[static_cast<std::size_t>(view_->k.codec)];
  const std::byte* tile = place.slice + place.row / kKeyTileRows * view_->k.layout.row_stride_bytes;
  float* elements = is_int16_ ? slab.keys.reserve(0) : slab.rows.reserve(0);
  decode(tile, elements, std::size_t{dim()} * kKeyTileRows);
  const std::uint64_t first = place.row % kKeyTileRows;
  for (std::uint32_t row = 0; row < place.count; ++row) {
    for (std::uint32_t d = 0; d < dim(); ++d) {
      out[std::size_t{row} * dim() + d] = elements[d * kKeyTileRows + first + row];
    }
  }
}

}  // namespace kvarto
