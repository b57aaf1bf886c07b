// Layers as paged engines see them: K and V of a layer share one page, an index cache, a state and
// a draft layer have pages of their own.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/engine.h"
#include "plan/owned_stream.h"

namespace kvarto {

enum class PageKind : std::uint8_t { kFull, kWindow, kChunk, kState };

// Layers whose pages are alike. The pointers live as long as the case.
struct PagedLayers {
  PageKind kind = PageKind::kFull;
  std::uint64_t window = 0;  // tokens of a window or chunk
  std::uint64_t tokens_per_row = 1;
  std::uint64_t num_layers = 0;
  bool is_draft = false;
  bool is_indexer = false;
  bool is_latent = false;            // one row serves as K and V
  std::vector<OwnedStream> streams;  // that share the page
  // Bytes of one row of one layer on this rank, all streams; for kState: of the whole state.
  std::uint64_t row_bytes = 0;

  [[nodiscard]] bool is_state() const { return kind == PageKind::kState; }
};

// The owned streams of the model and of its running draft layers. Errors: kUnsupported for streams
// that no paged engine has (two levels, predictors, eviction, ...) naming stream and engine.
[[nodiscard]] Result<std::vector<PagedLayers>> paged_layers(const EngineCase& engine_case,
                                                            std::string_view engine);

// Streams whose rows are compressed or whose blocks are padded need the DeepSeek-V4 rules.
[[nodiscard]] bool has_compressed_rows(const std::vector<PagedLayers>& layers);

// Puts `rows` rows of every stream of `layers` into the ledger for all sequences and layers.
// The causes of payload, scales and padding follow the stream's purpose unless `only` is given.
struct RowsEntry {
  std::uint64_t rows = 0;  // of one sequence and layer
  std::uint64_t num_sequences = 1;
  std::uint64_t num_ranks = 1;
};
[[nodiscard]] Status add_live_rows(Ledger& ledger, const PagedLayers& layers,
                                   const RowsEntry& entry);
[[nodiscard]] Status add_rows_as(Ledger& ledger, const PagedLayers& layers, const RowsEntry& entry,
                                 Cause cause);

// Bytes that belong to these layers but to no row, under one cause, per layer and sequence.
void add_flat(Ledger& ledger, const PagedLayers& layers, std::uint64_t bytes, Cause cause);

// Types of the GPU engines: everything but the ggml block formats.
[[nodiscard]] Status check_gpu_types(const PlanRequest& request, std::string_view engine);

// "%.2f" of bytes in GiB.
[[nodiscard]] std::string gib(double bytes);

}  // namespace kvarto
