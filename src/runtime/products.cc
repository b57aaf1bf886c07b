#include "runtime/products.h"

#include <algorithm>

#include "base/checked.h"
#include "kernels/forward_dispatch.h"
#include "runtime/matrix_library.h"

namespace kvarto {
namespace {

// From so many tokens on, widening a panel costs less than reading rows once a token.
constexpr std::uint64_t kMinPanelTokens = 8;
// Rows are handed to threads in pieces of this size: small enough to share the end of a product
// evenly, large enough to be one stream of memory.
constexpr std::uint64_t kPieceBytes = 64 << 10;
// A widened panel stays in a second-level cache (512 KiB to 2 MiB) beside the activations.
constexpr std::uint64_t kPanelBytes = 512 << 10;
// Below this many bytes of weights, times tokens, waking the other threads costs more than it
// saves.
constexpr std::uint64_t kMinSharedBytes = 128 << 10;
constexpr std::uint32_t kRowStep = 16;  // the most rows that kernels sum at once

}  // namespace

Products::Products(const ForwardKernels& kernels, ThreadPool& pool, bool uses_library)
    : kernels_(kernels), pool_(pool), uses_library_(uses_library), panels_(pool.num_threads()) {}

void Products::make_pieces(const Call& call, std::uint64_t piece_bytes, bool is_widened) {
  pieces_.clear();
  for (std::uint32_t i = 0; i < call.products.size(); ++i) {
    const Matrix& w = *call.products[i].weight;
    const std::uint64_t row = is_widened ? std::uint64_t{w.columns} * sizeof(float) : w.row_bytes;
    // At least two pieces a thread, so that no thread waits for long.
    const std::uint64_t share = ceil_div(w.rows, 2 * pool_.num_threads());
    const std::uint64_t rows = std::min(std::max<std::uint64_t>(piece_bytes / row, 1), share);
    const auto step = static_cast<std::uint32_t>(round_up(rows, kRowStep));
    for (std::uint32_t first = 0; first < w.rows; first += std::min(step, w.rows - first)) {
      pieces_.push_back({i, first, std::min(step, w.rows - first)});
    }
  }
}

void Products::code(const Call& call, std::uint32_t group, Codes& codes) const {
  const std::size_t columns = call.columns;
  codes.codes.resize(call.num_tokens * columns);
  codes.scales.resize(call.num_tokens * (columns / group));
  codes.sums.resize(call.num_tokens * (columns / kSumRun));
  for (std::size_t t = 0; t < call.num_tokens; ++t) {
    kernels_.code_activations({.x = call.x + t * columns,
                               .count = call.columns,
                               .group = group,
                               .codes = codes.codes.data() + t * columns,
                               .scales = codes.scales.data() + t * (columns / group),
                               .sums = codes.sums.data() + t * (columns / kSumRun)});
  }
}

void Products::pack(const Call& call, WeightType type) {
  const Codes& codes = weight_block(type) == 256 ? by_256_ : by_32_;
  Packed& packed = packed_[static_cast<std::size_t>(type)];
  packed.token_bytes = ceil_div(call.columns, kPackedCodes) * kPackedBytes;
  packed.bytes = reinterpret_cast<std::byte*>(
      packed.storage.reserve(call.num_tokens * packed.token_bytes / sizeof(float)));
  for (std::size_t t = 0; t < call.num_tokens; ++t) {
    kernels_.pack_codes({.codes = codes.codes.data() + t * call.columns,
                         .count = call.columns,
                         .type = type,
                         .out = packed.bytes + t * packed.token_bytes});
  }
}

// Codes the activations for every type of weight that the call has.
void Products::code_all(const Call& call) {
  std::array<bool, kNumWeightTypes> has_type{};
  for (const Product& product : call.products) {
    has_type[static_cast<std::size_t>(product.weight->type)] = true;
  }
  const auto has_group = [&](std::uint32_t group) {
    return std::any_of(call.products.begin(), call.products.end(), [&](const Product& product) {
      return weight_block(product.weight->type) == group;
    });
  };
  if (has_group(32)) code(call, 32, by_32_);
  if (has_group(256)) code(call, 256, by_256_);
  if (kernels_.pack_codes == nullptr) return;
  for (int type = kNumDenseWeightTypes; type < kNumWeightTypes; ++type) {
    if (has_type[static_cast<std::size_t>(type)]) pack(call, static_cast<WeightType>(type));
  }
}

void Products::add_bias(const Call& call, const Piece& piece) const {
  const Product& product = call.products[piece.product];
  if (product.bias == nullptr || product.bias->empty()) return;
  for (std::size_t t = 0; t < call.num_tokens; ++t) {
    float* out = product.out + t * product.weight->rows + piece.first;
    const float* bias = product.bias->data() + piece.first;
    for (std::uint32_t r = 0; r < piece.count; ++r) out[r] += bias[r];
  }
}

void Products::run_rows(const Call& call, const Piece& piece) const {
  const Product& product = call.products[piece.product];
  const Matrix& w = *product.weight;
  const std::uint32_t group = weight_block(w.type);
  const Codes& codes = group == 256 ? by_256_ : by_32_;
  for (std::size_t t = 0; t < call.num_tokens; ++t) {
    RowProductsArgs args{.weights = w.bytes + piece.first * w.row_bytes,
                         .row_bytes = w.row_bytes,
                         .num_rows = piece.count,
                         .columns = w.columns,
                         .x = call.x + t * w.columns,
                         .out = product.out + t * w.rows + piece.first};
    if (group > 1) {
      args.codes = codes.codes.data() + t * w.columns;
      args.scales = codes.scales.data() + t * (w.columns / group);
      args.sums = codes.sums.data() + t * (w.columns / kSumRun);
      if (kernels_.pack_codes != nullptr) {
        const Packed& packed = packed_[static_cast<std::size_t>(w.type)];
        args.packed = packed.bytes + t * packed.token_bytes;
      }
    }
    kernels_.row_products[static_cast<int>(w.type)](args);
  }
}

void Products::run_panel(const Call& call, const Piece& piece, AlignedFloats& panel) const {
  const Product& product = call.products[piece.product];
  const Matrix& w = *product.weight;
  float* rows = panel.reserve(std::size_t{piece.count} * w.columns);
  for (std::size_t r = 0; r < piece.count; ++r) {
    kernels_.widen[static_cast<int>(w.type)](w.bytes + (piece.first + r) * w.row_bytes,
                                             rows + r * w.columns, w.columns);
  }
  if (uses_library_ && multiply_dense({.a = call.x,
                                       .b = rows,
                                       .c = product.out + piece.first,
                                       .num_tokens = call.num_tokens,
                                       .num_rows = piece.count,
                                       .depth = w.columns,
                                       .c_stride = w.rows})) {
    return;
  }
  for (std::size_t t = 0; t < call.num_tokens; ++t) {
    kernels_.row_products[static_cast<int>(WeightType::kF32)](
        {.weights = reinterpret_cast<const std::byte*>(rows),
         .row_bytes = std::uint64_t{w.columns} * sizeof(float),
         .num_rows = piece.count,
         .columns = w.columns,
         .x = call.x + t * w.columns,
         .out = product.out + t * w.rows + piece.first});
  }
}

void Products::run(std::span<const Product> products, const float* x, std::uint64_t num_tokens) {
  Call call{.products = products,
            .x = x,
            .num_tokens = static_cast<std::uint32_t>(num_tokens),
            .columns = products.front().weight->columns};
  const bool is_widened = num_tokens >= kMinPanelTokens;
  make_pieces(call, is_widened ? kPanelBytes : kPieceBytes, is_widened);
  if (!is_widened) code_all(call);
  std::uint64_t bytes = 0;
  for (const Product& product : products) bytes += product.weight->rows * product.weight->row_bytes;
  std::atomic<std::size_t> next{0};
  const auto work = [&](std::size_t thread) {
    for (std::size_t i = next.fetch_add(1, std::memory_order_relaxed); i < pieces_.size();
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      if (is_widened) {
        run_panel(call, pieces_[i], panels_[thread]);
      } else {
        run_rows(call, pieces_[i]);
      }
      add_bias(call, pieces_[i]);
    }
  };
  if (bytes * num_tokens < kMinSharedBytes) {
    work(0);
  } else {
    pool_.run(work);
  }
}

}  // namespace kvarto
