// The double-precision references of latent attention and of the indexer, against other
// implementations (tests/golden).

#include "reference/latent_vectors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/dispatch.h"
#include "kvarto/codec.h"

namespace kvarto::test {
namespace {

// Rows of the best scores, ascending.
std::vector<std::uint32_t> best_rows(const std::vector<double>& scores, std::size_t visible,
                                     std::size_t count) {
  std::vector<std::uint32_t> rows(visible);
  std::iota(rows.begin(), rows.end(), 0u);
  std::stable_sort(rows.begin(), rows.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
  rows.resize(std::min(count, visible));
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(LatentVectors, CoverFourModelsOfTransformersAndTheOfficialIndexer) {
  std::vector<std::string> names;
  for (const LatentVectors& vectors : read_latent_vectors()) names.push_back(vectors.name);
  EXPECT_EQ(names, (std::vector<std::string>{"deepseek_v2", "deepseek_v3", "deepseek_v32",
                                             "glm_moe_dsa", "glm_moe_dsa_shared", "index_fp8"}));
}

TEST(LatentVectors, AgreeWithExpandedAttentionInDoublePrecision) {
  std::size_t num_checked = 0;
  for (const LatentVectors& vectors : read_latent_vectors()) {
    if (vectors.heads == 0) continue;
    const std::vector<double> out = expanded_attention(vectors);
    const std::vector<float>& golden = vectors.array("out");
    ASSERT_EQ(out.size(), golden.size());
    const double tolerance = latent_tolerance(vectors);
    ASSERT_LT(tolerance, 1e-2) << "a bound that tells nothing";
    for (std::size_t i = 0; i < out.size(); ++i, ++num_checked) {
      ASSERT_NEAR(out[i], golden[i], tolerance) << vectors.name << " element " << i;
    }
  }
  EXPECT_EQ(num_checked, 5u * 6 * 4 * 10);
}

TEST(LatentVectors, SelectWhatTheIndexScoresSelect) {
  for (const LatentVectors& vectors : read_latent_vectors()) {
    if (vectors.index_heads == 0 || vectors.heads == 0) continue;
    ASSERT_EQ(vectors.selected.size(), vectors.queries);
    for (std::uint32_t query = 0; query < vectors.queries; ++query) {
      const auto scores = index_scores(vectors, query, vectors.array("index_k"));
      EXPECT_EQ(best_rows(scores, vectors.position(query) + 1, vectors.top_k),
                vectors.selected[query])
          << vectors.name << " query " << query;
    }
  }
}

TEST(LatentVectors, QuantisedIndexKeysScoreAsInTheOfficialCode) {
  for (const LatentVectors& vectors : read_latent_vectors()) {
    if (vectors.heads != 0) continue;
    const KernelTable& kernels = kernel_table(Isa::kScalar);
    const auto codec = static_cast<std::size_t>(Codec::kFp8Scaled128);
    std::vector<float> keys(vectors.array("index_k").size());
    for (std::size_t i = 0; i < keys.size(); i += vectors.index_dim) {
      std::byte image[256];
      kernels.encode[codec](vectors.array("index_k").data() + i, image, vectors.index_dim);
      kernels.decode[codec](image, keys.data() + i, vectors.index_dim);
    }
    const std::vector<double> scores = index_scores(vectors, 0, keys);
    const std::vector<float>& golden = vectors.array("scores");
    ASSERT_EQ(scores.size(), golden.size());
    // The scores are written down in f32.
    for (std::size_t i = 0; i < scores.size(); ++i) {
      EXPECT_NEAR(scores[i], golden[i], std::ldexp(std::fabs(golden[i]), -24)) << i;
    }
    EXPECT_EQ(best_rows(scores, vectors.tokens, vectors.top_k), vectors.selected[0]);
  }
}

}  // namespace
}  // namespace kvarto::test
