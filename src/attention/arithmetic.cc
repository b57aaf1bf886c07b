#include "attention/arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "attention/half_bound.h"
#include "attention/row_slab.h"
#include "base/code_format.h"
#include "kernels/dispatch.h"

namespace kvarto {

namespace {

constexpr std::array<std::string_view, 4> kArithNames = {"auto", "f32", "f16", "int8"};

}  // namespace

std::string_view arith_name(Arith arith) { return kArithNames[static_cast<std::size_t>(arith)]; }

std::optional<Arith> arith_from_name(std::string_view name) {
  const auto* found = std::find(kArithNames.begin(), kArithNames.end(), name);
  if (found == kArithNames.end()) return std::nullopt;
  return static_cast<Arith>(found - kArithNames.begin());
}

namespace {

Status check_half_stream(const StreamView& stream, std::string_view name) {
  if (stream.codec != Codec::kF16) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("arith: f16 needs a cache of f16, found {} in {}",
                            codec_info(stream.codec).name, name));
  }
  if (stream.squares.peaks == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("arith: f16 needs to know how large the elements of {} are, expected a "
                            "cache that keeps squares (CacheOptions::keeps_squares)",
                            name));
  }
  return {};
}

}  // namespace

namespace {

bool has_code_tiles(const StreamView& stream) {
  return (stream.layout.order == RowOrder::kHeadTiles ||
          stream.layout.order == RowOrder::kHeadValueTiles) &&
         code_format(stream.codec, stream.width).has_value();
}

}  // namespace

Result<ChosenArith> choose_arith(const AttentionOptions& options, const CacheView& view,
                                 std::uint32_t num_q_heads, const KernelTable& selected,
                                 Phase phase) {
  if (options.query_bits != 16 && options.query_bits != 8) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("query_bits: found {}, expected 16 or 8", options.query_bits));
  }
  const bool has_codes = has_code_tiles(view.k) || has_code_tiles(view.v);
  if (options.arith == Arith::kInt8 && !has_codes) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("arith: int8 needs keys or values of int8, int4, q8_0 or q4_0 in the "
                            "hardware layout, with blocks of a multiple of {} tokens and heads of "
                            "a multiple of {} elements (rows that are K and V at once have no "
                            "tiles); found {} of {} and {} of {} in {}",
                            kKeyTileRows, kCodeColumn, codec_info(view.k.codec).name, view.k.width,
                            codec_info(view.v.codec).name, view.v.width, layout_of(view)));
  }
  // 8-bit queries ask for integers, whatever is faster.
  const bool is_fast = phase == Phase::kDecode || options.query_bits != 16
                           ? selected.codes.is_fast
                           : selected.codes.is_fast_in_prefill;
  const bool is_chosen = options.arith == Arith::kAuto && has_codes && is_fast;
  if (options.arith == Arith::kInt8 || is_chosen) return ChosenArith{Arith::kInt8, &selected};
  if (options.query_bits != 16) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("query_bits: found {}, but integer arithmetic, which it is for, does "
                            "not run here",
                            options.query_bits));
  }
  if (options.arith != Arith::kF16) return ChosenArith{Arith::kF32, &selected};
  KVARTO_TRY(const KernelTable* kernels, half_kernels(selected));
  KVARTO_CHECK_OK(check_half_stream(view.k, "k"));
  KVARTO_CHECK_OK(check_half_stream(view.v, "v"));
  const bool is_grouped = view.k.heads != 0 && num_q_heads / view.k.heads >= kMinSlabQueries;
  if (view.k.layout.order != RowOrder::kHeadTiles && !is_grouped) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("arith: f16 needs keys in tiles of {} rows, found rows; expected the "
                            "hardware layout with blocks of a multiple of {} tokens, or {} query "
                            "heads for each head of K",
                            kKeyTileRows, kKeyTileRows, kMinSlabQueries));
  }
  return ChosenArith{Arith::kF16, kernels};
}

Status check_arith(Arith arith, const CallShape& call, const PassShape& shape) {
  return arith == Arith::kF16 ? check_half_bound(call, shape) : Status{};
}

}  // namespace kvarto
