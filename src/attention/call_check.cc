#include "attention/call_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/code_pass.h"
#include "attention/row_slab.h"
#include "base/checked.h"

namespace kvarto {
namespace {

// How the kernels read a stream: elements of the cache, or of an f32 slab that is filled first.
struct StreamReading {
  Element element = Element::kF32;
  DecodeFunction fill = nullptr;
};

Result<StreamReading> reading_of(const StreamView& stream, std::string_view name,
                                 const KernelTable& kernels) {
  switch (stream.codec) {
    case Codec::kF32:
      return StreamReading{Element::kF32, nullptr};
    case Codec::kF16:
      return StreamReading{Element::kF16, nullptr};
    case Codec::kBF16:
      return StreamReading{Element::kBF16, nullptr};
    default:
      break;
  }
  const CodecInfo& info = codec_info(stream.codec);
  const DecodeFunction fill = kernels.decode[static_cast<std::size_t>(stream.codec)];
  if (fill == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: codec: found {}, which attention cannot read", name, info.name));
  }
  if (stream.layout.order == RowOrder::kHeadTiles ||
      stream.layout.order == RowOrder::kHeadValueTiles) {
    if (code_format(stream.codec, stream.width).has_value()) return StreamReading{};
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: layout: found tiles of {}, expected rows", name, info.name));
  }
  if (!info.is_partial_group_allowed && stream.width % info.group_elements != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: width: found {}, expected a multiple of {} for {}", name,
                            stream.width, info.group_elements, info.name));
  }
  return StreamReading{Element::kF32, fill};
}

Status check_stream(const StreamView& stream, std::string_view name) {
  if (stream.base == nullptr) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: base: found null", name));
  }
  if (static_cast<int>(stream.codec) >= kNumCodecs) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: codec: found {}, expected one of Codec", name,
                            static_cast<unsigned>(stream.codec)));
  }
  if (stream.layout.order > RowOrder::kHeadValueTiles) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: layout: order: found {}, expected one of RowOrder", name,
                            static_cast<unsigned>(stream.layout.order)));
  }
  if (stream.heads == 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: heads: found 0", name));
  }
  if (stream.width == 0 || stream.width > kMaxHeadDim) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: width: found {}, expected 1 to {}",
                                                         name, stream.width, kMaxHeadDim));
  }
  return {};
}

// The second field of rows whose first one is `head`.
Status check_tail(const StreamView& head, const StreamView& tail, std::string_view name,
                  const KernelTable& kernels) {
  if (tail.width == 0) return {};
  const std::string tail_name = fmt::format("{}_tail", name);
  KVARTO_CHECK_OK(check_stream(tail, tail_name));
  KVARTO_CHECK_OK(reading_of(tail, tail_name, kernels));
  if (head.heads != 1 || tail.heads != 1) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: found {} and {} heads, expected 1",
                                                     tail_name, head.heads, tail.heads));
  }
  if (std::max(head.layout.order, tail.layout.order) > RowOrder::kHeadRow) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: layout: found tiles, expected rows", tail_name));
  }
  if (head.block_stride_bytes != tail.block_stride_bytes ||
      head.layout.row_stride_bytes != tail.layout.row_stride_bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: found rows {} bytes apart in blocks of {}, expected {} and {} as "
                            "in {}",
                            tail_name, tail.layout.row_stride_bytes, tail.block_stride_bytes,
                            head.layout.row_stride_bytes, head.block_stride_bytes, name));
  }
  if (head.width + tail.width > kMaxHeadDim) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: width: found {} behind {}, expected at most {} in all", tail_name,
                            tail.width, head.width, kMaxHeadDim));
  }
  return {};
}

Status check_tails(const CacheView& view, const KernelTable& kernels) {
  KVARTO_CHECK_OK(check_tail(view.k, view.k_tail, "k", kernels));
  KVARTO_CHECK_OK(check_tail(view.v, view.v_tail, "v", kernels));
  if (view.v_tail.width == 0) return {};
  if (has_shared_rows(view) && view.v_tail.base == view.k_tail.base &&
      view.v_tail.width == view.k_tail.width && view.v_tail.codec == view.k_tail.codec) {
    return {};
  }
  return fail(ErrorCode::kUnsupported, "v_tail: found values of two fields, expected the row of k");
}

Status check_view(const CacheView& view) {
  KVARTO_CHECK_OK(check_stream(view.k, "k"));
  KVARTO_CHECK_OK(check_stream(view.v, "v"));
  if (view.k.heads != view.v.heads) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("v: heads: found {}, expected {} as in k", view.v.heads, view.k.heads));
  }
  if (view.rows_per_block == 0) {
    return fail(ErrorCode::kInvalidArgument, "view: rows_per_block: found 0");
  }
  if (view.k.layout.order == RowOrder::kHeadValueTiles) {
    return fail(ErrorCode::kUnsupported, "k: layout: found tiles of values");
  }
  const bool is_tiled = view.k.layout.order == RowOrder::kHeadTiles ||
                        view.v.layout.order == RowOrder::kHeadValueTiles;
  if (is_tiled && view.rows_per_block % kKeyTileRows != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("view: rows_per_block: found {}, expected a "
                            "multiple of {} for tiles",
                            view.rows_per_block, kKeyTileRows));
  }
  if (view.v.layout.order == RowOrder::kHeadTiles) {
    return fail(ErrorCode::kUnsupported, "v: layout: found tiles of keys, expected rows");
  }
  return {};
}

Status check_options(const AttentionOptions& options, std::uint32_t num_q_heads) {
  if (options.scale.has_value() && !std::isfinite(*options.scale)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("options: scale: found {}, expected a finite number", *options.scale));
  }
  if (!std::isfinite(options.soft_cap) || options.soft_cap < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("options: soft_cap: found {}, expected 0 or more", options.soft_cap));
  }
  if (!options.alibi_slopes.empty() && options.alibi_slopes.size() != num_q_heads) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("options: alibi_slopes: found {} values, expected {}",
                            options.alibi_slopes.size(), num_q_heads));
  }
  for (const float slope : options.alibi_slopes) {
    if (std::isfinite(slope)) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("options: alibi_slopes: found {}, expected finite numbers", slope));
  }
  for (const float sink : options.sink_logits) {
    if (sink < std::numeric_limits<float>::infinity()) continue;  // -infinity is no sink at all
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("options: sink_logits: found {}, expected numbers below infinity", sink));
  }
  if (!options.sink_logits.empty() && options.sink_logits.size() != num_q_heads) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("options: sink_logits: found {} values, expected {}",
                            options.sink_logits.size(), num_q_heads));
  }
  return {};
}

Status check_size(std::string_view name, std::size_t found, std::uint64_t queries,
                  std::uint64_t heads, std::uint64_t dim) {
  const auto rows = checked_mul(queries, heads);
  const auto size = rows.has_value() ? checked_mul(*rows, dim) : std::nullopt;
  if (size.has_value() && *size == found) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: found {} values, expected {} x {} x {}",
                                                       name, found, queries, heads, dim));
}

std::uint32_t round_up_floats(std::uint32_t count) {
  return (count + kPadFloats - 1) / kPadFloats * kPadFloats;
}

}  // namespace

Result<PassShape> check_call(const CallShape& call, const KernelTable& kernels) {
  const CacheView& view = *call.view;
  const AttentionOptions& options = *call.options;
  KVARTO_CHECK_OK(check_view(view));
  KVARTO_CHECK_OK(check_tails(view, kernels));
  const std::uint32_t qk_dim = view.k.width + view.k_tail.width;
  const std::uint32_t v_dim = view.v.width + view.v_tail.width;
  if (call.num_q_heads == 0 || call.num_q_heads % view.k.heads != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("num_q_heads: found {}, expected a multiple of the {} heads of k",
                            call.num_q_heads, view.k.heads));
  }
  KVARTO_CHECK_OK(check_options(options, call.num_q_heads));
  KVARTO_CHECK_OK(check_size("q", call.q_size, call.num_queries, call.num_q_heads, qk_dim));
  KVARTO_CHECK_OK(check_size("out", call.out_size, call.num_queries, call.num_q_heads, v_dim));
  if (call.lse_size != 0) {
    KVARTO_CHECK_OK(check_size("lse", call.lse_size, call.num_queries, call.num_q_heads, 1));
  }
  PassShape shape;
  shape.kernels = &kernels;
  KVARTO_TRY(const StreamReading k, reading_of(view.k, "k", kernels));
  KVARTO_TRY(const StreamReading v, reading_of(view.v, "v", kernels));
  shape.k_element = k.element;
  shape.k_fill = k.fill;
  shape.k_row_bytes = codec_bytes(view.k.codec, view.k.width).total();
  shape.v_element = v.element;
  shape.v_fill = v.fill;
  shape.v_row_bytes = codec_bytes(view.v.codec, view.v.width).total();
  shape.k_codes = code_stream_of(view.k, view.rows_per_block);
  shape.v_codes = code_stream_of(view.v, view.rows_per_block);
  shape.is_tiled = view.k.layout.order == RowOrder::kHeadTiles;
  shape.qk_dim = qk_dim;
  shape.v_dim = v_dim;
  shape.q_stride = round_up_floats(shape.qk_dim);
  shape.acc_stride = round_up_floats(shape.v_dim);
  const float scale = options.scale.value_or(1.0f / std::sqrt(static_cast<float>(shape.qk_dim)));
  shape.query_scale = scale * kLog2E;
  // Far above every finite score a cap changes nothing, and nearer to the end of f32 it overflows.
  constexpr float kLargestSoftCap = 1e30f;
  shape.soft_cap = std::min(options.soft_cap, kLargestSoftCap) * kLog2E;
  choose_slab(view, call.num_q_heads / view.k.heads, shape);
  return shape;
}

Status check_sequence(const CacheView& view, std::size_t index, std::uint64_t first_row) {
  const SequenceView& sequence = view.sequences[index];
  if (sequence.num_tokens == 0) return {};
  const std::uint64_t end_block = ceil_div(sequence.num_tokens, view.rows_per_block);
  if (end_block < sequence.first_block ||
      end_block - sequence.first_block > sequence.block_table.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("sequence {}: block_table: found {} blocks from "
                            "block {}, expected {} "
                            "for {} tokens",
                            index, sequence.block_table.size(), sequence.first_block, end_block,
                            sequence.num_tokens));
  }
  const std::uint64_t first_block = first_row / view.rows_per_block;
  if (first_row < sequence.num_tokens && first_block < sequence.first_block) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("sequence {}: first_block: found {}, but row {} of "
                            "block {} is visible",
                            index, sequence.first_block, first_row, first_block));
  }
  return {};
}

namespace {

Status check_selection(std::span<const std::uint32_t> rows, std::size_t index,
                       std::uint64_t num_tokens) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < num_tokens && (i == 0 || rows[i - 1] < rows[i])) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("selections: sequence {}: found row {} in place {}, expected ascending "
                            "rows below its {} tokens",
                            index, rows[i], i, num_tokens));
  }
  return {};
}

}  // namespace

Status check_selections(const DecodeCall& call) {
  const CacheView& view = call.view;
  if (call.selections.size() != view.sequences.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("selections: found {}, expected one for each of {} sequences",
                            call.selections.size(), view.sequences.size()));
  }
  if (call.options.window != 0 || call.options.chunk != 0 || !call.options.alibi_slopes.empty()) {
    return fail(ErrorCode::kUnsupported,
                "selections: found a window, a chunk or ALiBi beside them, expected none");
  }
  if (std::max(view.k.layout.order, view.v.layout.order) > RowOrder::kHeadRow) {
    return fail(ErrorCode::kUnsupported,
                "selections: found K or V in tiles, expected rows, as streams read by top-k are");
  }
  for (std::size_t s = 0; s < call.selections.size(); ++s) {
    KVARTO_CHECK_OK(check_selection(call.selections[s], s, view.sequences[s].num_tokens));
  }
  return {};
}

RowPairBytes row_pair_bytes(const CacheView& view) {
  const auto bytes_of = [](const StreamView& stream) {
    return stream.width == 0 ? 0 : codec_bytes(stream.codec, stream.width).total() * stream.heads;
  };
  const bool is_shared = has_shared_rows(view);
  return {.k = bytes_of(view.k) + bytes_of(view.k_tail),
          .v = is_shared ? 0 : bytes_of(view.v) + bytes_of(view.v_tail)};
}

std::string_view layout_of(const CacheView& view) {
  return layout_name(view.k.layout.order == RowOrder::kRowHead ? Layout::kGeneric
                                                               : Layout::kHardware);
}

}  // namespace kvarto
