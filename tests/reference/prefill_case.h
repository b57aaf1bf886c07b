// Queries of a prefill over a CacheCase, and how far what it returned is from the reference.

#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reference/cache_case.h"

namespace kvarto::test {

struct PrefillCase {
  CacheCase cache;
  std::vector<std::uint64_t> q_lens;
  std::vector<float> q;
  std::vector<float> out;
  std::vector<float> lse;

  PrefillCase(const CaseShape& shape, std::vector<std::uint64_t> lens)
      : cache(shape), q_lens(std::move(lens)) {
    std::uint64_t tokens = 0;
    for (const std::uint64_t length : q_lens) tokens += length;
    std::mt19937_64 random(shape.seed + 77);
    std::normal_distribution<float> normal;
    q.resize(tokens * shape.q_heads * shape.qk_dim);
    for (float& x : q) x = normal(random);
    out.assign(tokens * shape.q_heads * shape.v_dim, NAN);
    lse.assign(tokens * shape.q_heads, NAN);
  }

  PrefillCall call(const AttentionOptions& options) {
    PrefillCall call;
    call.view = cache.view();
    call.q_lens = q_lens;
    call.num_q_heads = cache.shape.q_heads;
    call.q = q;
    call.options = options;
    call.out = out;
    call.lse = lse;
    return call;
  }

  double deviation(const AttentionOptions& options) const {
    const CaseShape& shape = cache.shape;
    Deviation deviation;
    std::size_t row = 0;
    for (std::size_t s = 0; s < q_lens.size(); ++s) {
      for (std::uint64_t i = 0; i < q_lens[s]; ++i) {
        for (std::uint32_t q_head = 0; q_head < shape.q_heads; ++q_head, ++row) {
          QueryResult result;
          result.sequence = s;
          result.q_head = q_head;
          result.position = shape.lengths[s] - q_lens[s] + i;
          result.q = std::span(q).subspan(row * shape.qk_dim, shape.qk_dim);
          result.out = std::span(out).subspan(row * shape.v_dim, shape.v_dim);
          result.lse = lse[row];
          expect_query_matches(cache, result, options, deviation);
        }
      }
    }
    return deviation.relative();
  }
};

}  // namespace kvarto::test
