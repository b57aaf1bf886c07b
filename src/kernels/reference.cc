#include "kernels/reference.h"

#include <algorithm>
#include <cmath>

namespace kvarto {
namespace {

double score(const ReferenceCall& call, std::uint64_t row) {
  double dot = 0;
  for (std::uint64_t d = 0; d < call.qk_dim; ++d) {
    dot += double{call.q[d]} * double{call.k[row * call.qk_dim + d]};
  }
  double x = dot * call.scale;
  if (call.soft_cap > 0) x = call.soft_cap * std::tanh(x / call.soft_cap);
  return x + call.slope * (static_cast<double>(row) - static_cast<double>(call.query_position));
}

}  // namespace

ReferenceResult reference_attention(const ReferenceCall& call) {
  ReferenceResult result;
  result.out.assign(call.v_dim, 0.0);
  std::vector<double> scores;
  double largest = call.sink.value_or(-std::numeric_limits<double>::infinity());
  for (std::uint64_t row = call.first_row; row < call.end_row; ++row) {
    scores.push_back(score(call, row));
    largest = std::max(largest, scores.back());
  }
  if (scores.empty() && !call.sink.has_value()) return result;
  double z = call.sink.has_value() ? std::exp(*call.sink - largest) : 0.0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double p = std::exp(scores[i] - largest);
    z += p;
    const float* v = &call.v[(call.first_row + i) * call.v_dim];
    for (std::uint64_t d = 0; d < call.v_dim; ++d) result.out[d] += p * double{v[d]};
  }
  for (double& x : result.out) x /= z;
  result.lse = largest + std::log(z);
  return result;
}

}  // namespace kvarto
