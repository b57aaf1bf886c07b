// A cache of latent rows for tests: one layer of [latent, rope], the rows that were written, and
// attention over them in double precision.

#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kvarto/kv_cache.h"
#include "spec/architectures.h"

namespace kvarto {

// What a field keeps of its elements, by the definition of its codec.
inline void round_as_stored(const Field& field, std::span<float> elements) {
  const KernelTable& kernels = kernel_table(Isa::kScalar);
  std::vector<std::byte> bytes(codec_bytes(field.codec, field.width).total());
  kernels.encode[static_cast<int>(field.codec)](elements.data(), bytes.data(), field.width);
  kernels.decode[static_cast<int>(field.codec)](bytes.data(), elements.data(), field.width);
}

inline ModelSpec latent_model(const LatentShape& shape, const std::string& type,
                              Lifetime lifetime) {
  ModelSpec model;
  model.num_layers = 1;
  model.groups = group_layers({mla_layer(shape)});
  model.groups[0].streams[0].lifetime = lifetime;
  return *with_types(model, {.key = type, .value = type, .index = ""});
}

// A sequence and the rows that it should hold, [token][latent + rope], as stored.
struct LatentSequence {
  SequenceId id{};
  std::vector<float> rows;
};

class LatentCache {
 public:
  LatentCache(const LatentShape& shape, const std::string& type, const CacheOptions& options,
              Lifetime lifetime = {})
      : shape_(shape),
        cache_(*KvCache::create(latent_model(shape, type, lifetime), options)),
        stream_(*cache_.find_stream(0, "latent")) {}

  [[nodiscard]] std::uint32_t width() const { return shape_.latent_dim + shape_.rope_dim; }
  [[nodiscard]] KvCache& cache() { return cache_; }
  [[nodiscard]] StreamId stream() const { return stream_; }
  [[nodiscard]] std::uint64_t num_tokens(const LatentSequence& sequence) const {
    return sequence.rows.size() / width();
  }

  LatentSequence create() { return {.id = *cache_.create_sequence(), .rows = {}}; }

  // Appends rows of N(0, 1), some channels with an offset.
  void grow(LatentSequence& sequence, std::uint64_t count) {
    const std::uint64_t first = num_tokens(sequence);
    std::normal_distribution<float> normal;
    for (std::uint64_t i = 0; i < count * width(); ++i) {
      sequence.rows.push_back(normal(random_) + (i % width() == 5 ? 3.0f : 0.0f));
    }
    const auto added = std::span(sequence.rows).subspan(first * width());
    is_good_ &= *cache_.append(sequence.id, count) == Grant::kDone;
    is_good_ &=
        cache_.write(sequence.id, stream_, first, {Codec::kF32, std::as_bytes(added)}).has_value();
    const std::vector<Field>& fields = cache_.model().groups[0].streams[0].fields;
    for (std::size_t at = 0; at < added.size();) {
      for (const Field& field : fields) {
        round_as_stored(field, added.subspan(at, field.width));
        at += field.width;
      }
    }
  }

  LatentSequence fork(const LatentSequence& parent, std::uint64_t length) {
    LatentSequence child{.id = **cache_.fork(parent.id, length), .rows = parent.rows};
    child.rows.resize(length * width());
    return child;
  }

  [[nodiscard]] Result<LayerView> view(const std::vector<LatentSequence>& batch) const {
    std::vector<SequenceId> ids;
    for (const LatentSequence& sequence : batch) ids.push_back(sequence.id);
    return cache_.view(stream_, stream_, ids);
  }

  // Whether every call succeeded so far.
  [[nodiscard]] bool is_good() const { return is_good_; }

  // Softmax attention of one absorbed query over `rows` of a sequence, in double precision.
  [[nodiscard]] std::vector<double> attend(const LatentSequence& sequence, std::span<const float> q,
                                           std::span<const std::uint32_t> rows,
                                           double scale) const {
    std::vector<double> scores;
    double largest = -INFINITY;
    for (const std::uint32_t row : rows) {
      double score = 0;
      for (std::uint32_t d = 0; d < width(); ++d) {
        score += double{q[d]} * sequence.rows[std::size_t{row} * width() + d];
      }
      scores.push_back(score * scale);
      largest = std::max(largest, scores.back());
    }
    std::vector<double> out(shape_.latent_dim, 0.0);
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double weight = std::exp(scores[i] - largest);
      sum += weight;
      for (std::uint32_t d = 0; d < shape_.latent_dim; ++d) {
        out[d] += weight * sequence.rows[std::size_t{rows[i]} * width() + d];
      }
    }
    for (double& value : out) value /= sum == 0 ? 1 : sum;
    return out;
  }

 private:
  LatentShape shape_;
  KvCache cache_;
  StreamId stream_;
  std::mt19937 random_{7};
  bool is_good_ = true;
};

}  // namespace kvarto
