// What a measurement of latent attention needs beside a cache: weights, queries before they are
// absorbed, and outputs in double precision.

#pragma once

#include <vector>

#include "kvarto/latent_attention.h"
#include "kvarto/measure.h"
#include "profile/bench_cache.h"

namespace kvarto {

// Not thread-safe; one owner.
class LatentMeasurement {
 public:
  // Requires: bench.latent with a form.
  explicit LatentMeasurement(const AttentionBench& bench);

  // The call of all query tokens of `cache`; valid until the next call. A decode has no `q_lens`.
  [[nodiscard]] LatentCall call(const BenchCache& cache, std::span<const std::uint64_t> q_lens);

  // Elements of one output.
  [[nodiscard]] std::uint32_t v_dim() const { return latent_.v_dim; }
  [[nodiscard]] std::span<const float> out() const { return out_; }

  // As BenchCache::compare, for the output of the last call.
  void compare(const BenchCache& cache, std::uint64_t token, std::uint32_t q_head,
               double& difference, double& reference) const;

 private:
  AttentionBench bench_;
  LatentBench latent_;
  std::uint32_t key_dim_ = 0;
  std::vector<float> w_uk_;
  std::vector<float> w_uv_;
  std::vector<float> queries_;
  std::vector<float> out_;
};

}  // namespace kvarto
