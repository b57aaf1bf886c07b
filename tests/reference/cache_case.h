// A small cache made by hand for attention tests: storage poisoned with NaN, rows written element
// by element at addresses computed here, and the exact values that were stored.

#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "cache/element_squares.h"
#include "kvarto/attention.h"

namespace kvarto::test {

struct CaseShape {
  std::uint32_t q_heads = 4;
  std::uint32_t kv_heads = 2;
  std::uint32_t qk_dim = 64;
  std::uint32_t v_dim = 64;
  Codec codec = Codec::kF16;
  RowOrder k_order = RowOrder::kHeadTiles;
  RowOrder v_order = RowOrder::kHeadRow;
  std::uint32_t rows_per_block = 16;
  std::vector<std::uint64_t> lengths = {100};
  bool has_outliers = false;  // K channels with offsets +30, +100, +300 and large queries
  bool is_shuffled = true;    // blocks in random order
  float key_scale = 1;        // times N(0, 1)
  float value_scale = 1;
  std::uint64_t seed = 1;
};

class CacheCase {
 public:
  explicit CacheCase(const CaseShape& shape);

  [[nodiscard]] CacheView view() const;
  [[nodiscard]] DecodeCall decode_call(const AttentionOptions& options = {});

  // Writes the row `row` of sequence s, with the values of k_row and v_row, again (or NaN).
  void write_row(std::size_t s, std::uint64_t row, bool is_poison = false);
  // Exchanges the storage of all blocks by a new random order; contents are the same.
  void move_blocks(std::uint64_t seed);

  // Stored values of sequence s and KV head `head`: [length][dim].
  [[nodiscard]] std::vector<float> k_rows(std::size_t s, std::uint32_t head) const;
  [[nodiscard]] std::vector<float> v_rows(std::size_t s, std::uint32_t head) const;
  [[nodiscard]] std::span<const float> query(std::size_t s, std::uint32_t q_head) const;

  CaseShape shape;
  std::vector<SequenceView> sequences;
  std::vector<std::vector<std::uint32_t>> tables;
  std::vector<float> q;
  std::vector<float> out;
  std::vector<float> lse;
  // As stored, dequantised: by sequence [length][kv_heads][dim].
  std::vector<std::vector<float>> k;
  std::vector<std::vector<float>> v;

 private:
  [[nodiscard]] std::uint64_t element_bytes() const;
  [[nodiscard]] StreamLayout layout_of(RowOrder order, std::uint32_t width) const;
  [[nodiscard]] std::uint64_t element_offset(const StreamView& stream, std::uint32_t block,
                                             std::uint64_t row, std::uint32_t head,
                                             std::uint32_t element) const;
  void write_element(const StreamView& stream, std::uint32_t block, std::uint64_t row,
                     std::uint32_t head, std::uint32_t element, float value);
  float stored_value(float value) const;
  void fill(std::mt19937_64& random);

  std::uint64_t num_blocks_ = 0;
  std::uint64_t block_bytes_ = 0;
  std::vector<std::byte> storage_;
  ElementSquares k_squares_;
  ElementSquares v_squares_;
};

// One query of one head and what attention returned for it.
struct QueryResult {
  std::size_t sequence = 0;
  std::uint32_t q_head = 0;
  std::uint64_t position = 0;  // the row of the query's own token; ignored for empty sequences
  std::span<const float> q;
  std::span<const float> out;
  float lse = 0;
};
// Largest difference and largest reference seen so far.
struct Deviation {
  double difference = 0;
  double reference = 0;
  [[nodiscard]] double relative() const {
    return reference == 0 ? difference : difference / reference;
  }
};
// Compares with the double-precision reference; a difference beyond the derived bound is a
// GoogleTest failure.
void expect_query_matches(const CacheCase& test, const QueryResult& result,
                          const AttentionOptions& options, Deviation& deviation);

// Compares out and lse of `test` with the double-precision reference; on a difference beyond the
// derived bound a GoogleTest failure. Returns max |difference| / max |reference|.
double expect_matches_reference(const CacheCase& test, const AttentionOptions& options);

}  // namespace kvarto::test
