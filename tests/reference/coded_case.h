// A small cache of encoded rows for attention tests: K and V each in a codec of its own, in the
// places that the library chooses, with NaN wherever nothing is written.

#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "cache/slice.h"
#include "kvarto/attention.h"

namespace kvarto::test {

struct CodedShape {
  Codec k = Codec::kInt8;
  Codec v = Codec::kInt8;
  std::uint32_t q_heads = 4;
  std::uint32_t kv_heads = 2;
  std::uint32_t qk_dim = 64;
  std::uint32_t v_dim = 64;
  Layout layout = Layout::kHardware;
  std::uint32_t rows_per_block = 16;
  std::vector<std::uint64_t> lengths = {100};
  std::uint64_t shared_blocks = 0;  // of sequence 0, which begin all others too
  bool has_outliers = false;        // K channels with offsets +30, +100, +300 and large queries
  std::uint64_t seed = 1;
};

class CodedCase {
 public:
  CodedCase(const CodedShape& shape, const KernelTable& kernels);

  [[nodiscard]] CacheView view() const;
  // Rows of one head of sequence s as the codec gives them back, [length][dim].
  // Those of before poison().
  [[nodiscard]] std::span<const float> rows(bool is_key, std::size_t s, std::uint32_t head) const;
  // Overwrites row `row` of sequence s with what decodes to NaN.
  void poison(std::size_t s, std::uint64_t row);
  // Random queries of `num` tokens.
  [[nodiscard]] std::vector<float> queries(std::uint64_t num, std::uint64_t seed) const;

  CodedShape shape;

 private:
  [[nodiscard]] std::byte* slice_of(bool is_key, std::size_t s, std::uint64_t row);
  [[nodiscard]] std::vector<float> read(bool is_key, std::size_t s, std::uint32_t head);
  void write(std::size_t s, std::uint64_t row, bool is_key, std::span<const float> values);

  const KernelTable* kernels_;
  SliceShape k_shape_;
  SliceShape v_shape_;
  std::uint64_t k_bytes_ = 0;
  std::uint64_t v_bytes_ = 0;
  std::vector<std::vector<std::uint32_t>> tables_;
  std::vector<SequenceView> sequences_;
  std::vector<std::byte> storage_;
  std::vector<std::vector<float>> keys_;  // [sequence][head]
  std::vector<std::vector<float>> values_;
};

// One query and what attention gave for it.
struct CodedResult {
  std::size_t sequence = 0;
  std::uint32_t q_head = 0;
  std::uint64_t position = 0;
  std::span<const float> q;
  std::span<const float> out;
  float lse = 0;
};

// Largest |difference| / largest |reference| of many results.
struct CodedDeviation {
  double difference = 0;
  double reference = 0;
  [[nodiscard]] double relative() const {
    return reference == 0 ? difference : difference / reference;
  }
};

// Compares with the double-precision reference of the decoded rows. A difference beyond the bound
// of `report`'s arithmetic (kvarto/attention.h) is a GoogleTest failure.
void expect_within_bound(const CodedCase& test, const CodedResult& result,
                         const AttentionOptions& options, const AttentionReport& report,
                         CodedDeviation& deviation);

}  // namespace kvarto::test
