#include "profile/latent_measurement.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace kvarto {
namespace {

constexpr unsigned kSeed = 20260102;

std::vector<float> normal_numbers(std::size_t count, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

}  // namespace

LatentMeasurement::LatentMeasurement(const AttentionBench& bench)
    : bench_(bench), latent_(*bench.latent) {
  std::mt19937 random(kSeed);
  const std::size_t heads = bench.q_heads;
  const std::size_t tokens = std::size_t{bench.batch} * bench.q_len;
  key_dim_ = latent_.nope_dim + bench.qk_dim - bench.v_dim;
  // Keys and values of a head then are N(0, 1) as the rows are.
  const float deviation = 1 / std::sqrt(static_cast<float>(bench.v_dim));
  w_uk_ = normal_numbers(heads * latent_.nope_dim * bench.v_dim, deviation, random);
  w_uv_ = normal_numbers(heads * latent_.v_dim * bench.v_dim, deviation, random);
  queries_ = normal_numbers(tokens * heads * key_dim_, 1, random);
  out_.resize(tokens * heads * latent_.v_dim);
}

LatentCall LatentMeasurement::call(const BenchCache& cache, std::span<const std::uint64_t> q_lens) {
  LatentCall call;
  call.view = cache.view();
  call.q_lens = q_lens;
  call.num_heads = bench_.q_heads;
  call.weights = {w_uk_, w_uv_, latent_.nope_dim, latent_.v_dim};
  call.q = queries_;
  call.options.window = bench_.window;
  call.options.arith = bench_.arith;
  call.options.query_bits = bench_.query_bits;
  call.form = *latent_.form;
  call.out = out_;
  return call;
}

void LatentMeasurement::compare(const BenchCache& cache, std::uint64_t token, std::uint32_t q_head,
                                double& difference, double& reference) const {
  const std::uint32_t latent = bench_.v_dim;
  const std::size_t query = token * bench_.q_heads + q_head;
  const float* q = queries_.data() + query * key_dim_;
  std::vector<float> folded(bench_.qk_dim);
  for (std::uint32_t d = 0; d < latent; ++d) {
    double sum = 0;
    for (std::uint32_t n = 0; n < latent_.nope_dim; ++n) {
      const std::size_t row = std::size_t{q_head} * latent_.nope_dim + n;
      sum += double{q[n]} * double{w_uk_[row * latent + d]};
    }
    folded[d] = static_cast<float>(sum);
  }
  std::copy_n(q + latent_.nope_dim, bench_.qk_dim - latent, folded.data() + latent);
  const std::vector<double> mean =
      cache.exact(token, q_head, folded, 1 / std::sqrt(static_cast<double>(key_dim_))).out;
  for (std::uint32_t v = 0; v < latent_.v_dim; ++v) {
    const float* row = w_uv_.data() + (std::size_t{q_head} * latent_.v_dim + v) * latent;
    double expected = 0;
    for (std::uint32_t d = 0; d < latent; ++d) expected += double{row[d]} * mean[d];
    const double found = out_[query * latent_.v_dim + v];
    difference = std::max(difference, std::fabs(found - expected));
    reference = std::max(reference, std::fabs(expected));
  }
}

}  // namespace kvarto
