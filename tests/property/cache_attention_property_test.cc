// Attention over the views that KvCache hands out, against sums in double precision over the rows
// that were written: whatever layout and blocks, after windows have moved, forks and truncations.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cache_models.h"
#include "kernels/dispatch.h"
#include "kvarto/attention.h"

namespace kvarto {
namespace {

using rc::gen::inRange;

constexpr std::uint32_t kKvHeads = 2;
constexpr std::uint32_t kQueryHeads = 4;
constexpr std::uint32_t kDim = 32;  // tiles of integer codes hold it
constexpr std::uint64_t kRow = std::uint64_t{kKvHeads} * kDim;

using Values = std::vector<float>;

// A sequence and the rows of K and V that it should hold, [token][head][element].
struct Expected {
  SequenceId id{};
  Values k;
  Values v;
  [[nodiscard]] std::uint64_t num_tokens() const { return k.size() / kRow; }
};

class Engine {
 public:
  Engine(const ModelSpec& model, const CacheOptions& options)
      : cache_(*KvCache::create(model, options)),
        k_(*cache_.find_stream(1, "k")),
        v_(*cache_.find_stream(1, "v")) {}

  Expected create() { return {.id = *cache_.create_sequence(), .k = {}, .v = {}}; }

  void grow(Expected& sequence, std::uint64_t count) {
    const std::uint64_t first = sequence.num_tokens();
    RC_ASSERT(*cache_.append(sequence.id, count) == Grant::kDone);
    for (const auto& [stream, rows] : {std::pair{k_, &sequence.k}, std::pair{v_, &sequence.v}}) {
      // Numbers that f16 holds exactly.
      for (std::uint64_t i = 0; i < count * kRow; ++i) {
        rows->push_back(static_cast<float>(static_cast<int>(random_() % 257) - 128) / 64.0f);
      }
      const auto bytes = std::as_bytes(std::span(*rows).subspan(first * kRow));
      RC_ASSERT(cache_.write(sequence.id, stream, first, {Codec::kF32, bytes}).has_value());
      const Codec codec = cache_.stream_view(stream)->codec;
      for (std::size_t at = first * kRow; at < rows->size(); at += kDim) {
        round_as_stored(codec, std::span(*rows).subspan(at, kDim));
      }
    }
  }

  Expected fork(const Expected& parent, std::uint64_t length) {
    Expected child = parent;
    child.id = **cache_.fork(parent.id, length);
    child.k.resize(length * kRow);
    child.v.resize(length * kRow);
    return child;
  }

  void free(const Expected& sequence) { RC_ASSERT(cache_.free_sequence(sequence.id).has_value()); }

  // Decodes one query for each sequence and compares.
  void check(const std::vector<Expected>& batch, std::uint64_t window) {
    std::vector<SequenceId> ids;
    for (const Expected& sequence : batch) ids.push_back(sequence.id);
    const auto view = cache_.view(k_, v_, ids);
    RC_ASSERT(view.has_value());
    Values q(batch.size() * kQueryHeads * kDim);
    for (float& value : q) value = static_cast<float>(random_() % 1000) / 500.0f - 1.0f;
    Values out(q.size());
    DecodeCall call{.view = view->cache(), .num_q_heads = kQueryHeads, .q = q, .out = out};
    call.options.window = window;
    AttentionRunner runner = *AttentionRunner::create({});
    const auto report = runner.decode(call);
    if (!report) RC_FAIL(report.error().message);
    for (std::size_t s = 0; s < batch.size(); ++s) {
      for (std::uint32_t head = 0; head < kQueryHeads; ++head) {
        const std::size_t at = (s * kQueryHeads + head) * kDim;
        const std::vector<double> expected =
            reference(batch[s], std::span(q).subspan(at, kDim), head, window);
        // |v| <= 2; f32 sums of at most 100 terms stay far below 1e-4 of it. Integers add 9.8e-4 of
        // it, and 4e-4 to weights above and below the fraction: |q| <= 1, sums of |k| up to 64.
        const double bound = report->arith == "int8" ? 5e-3 : 2e-4;
        for (std::uint32_t d = 0; d < kDim; ++d) {
          RC_ASSERT(std::abs(out[at + d] - expected[d]) < bound);
        }
      }
    }
  }

 private:
  static std::vector<double> reference(const Expected& sequence, std::span<const float> q,
                                       std::uint32_t q_head, std::uint64_t window) {
    const std::uint64_t end = sequence.num_tokens();
    const std::uint64_t first = window != 0 && end > window ? end - window : 0;
    const std::uint32_t head = q_head / (kQueryHeads / kKvHeads);
    std::vector<double> out(kDim, 0.0);
    double sum = 0;
    for (std::uint64_t row = first; row < end; ++row) {
      const std::size_t at = row * kRow + head * kDim;
      double score = 0;
      for (std::uint32_t d = 0; d < kDim; ++d) score += double{q[d]} * sequence.k[at + d];
      const double weight = std::exp(score / std::sqrt(double{kDim}));
      sum += weight;
      for (std::uint32_t d = 0; d < kDim; ++d) out[d] += weight * sequence.v[at + d];
    }
    for (double& value : out) value /= sum;
    return out;
  }

  // What a type keeps of one head, by the definition of its codec.
  static void round_as_stored(Codec codec, std::span<float> head) {
    const KernelTable& kernels = kernel_table(Isa::kScalar);
    std::vector<std::byte> bytes(codec_bytes(codec, head.size()).total());
    kernels.encode[static_cast<int>(codec)](head.data(), bytes.data(), head.size());
    kernels.decode[static_cast<int>(codec)](bytes.data(), head.data(), head.size());
  }

  KvCache cache_;
  StreamId k_;
  StreamId v_;
  std::minstd_rand random_{7};
};

RC_GTEST_PROP(CacheAttentionProperty, DecodesTheRowsThatWereWritten, ()) {
  const std::uint64_t window = *rc::gen::element<std::uint64_t>(0, 0, 5, 33);
  const auto codec = [] {
    return *rc::gen::element(Codec::kF16, Codec::kF32, Codec::kInt8, Codec::kInt4, Codec::kQ8_0,
                             Codec::kQ4_0, Codec::kFp8E4M3, Codec::kFp8Scaled64);
  };
  ModelSpec model = dense_model(kKvHeads, kDim, codec(), 2);
  model.groups[0].streams[1].fields[0].codec = codec();
  for (Stream& stream : model.groups[0].streams) {
    if (window != 0) stream.lifetime = {Lifetime::Kind::kWindow, window};
  }
  CacheOptions options;
  options.layout = *rc::gen::element(Layout::kGeneric, Layout::kHardware);
  options.block_size = *rc::gen::element<std::uint64_t>(1, 7, 16, 32);
  options.is_contiguous = *inRange(0, 4) == 0;
  options.context = 100;
  options.num_sequences = 4;
  options.poisons_freed_blocks = true;
  Engine engine(model, options);
  Expected ended = engine.create();
  engine.grow(ended, 60);
  engine.free(ended);  // its blocks are used again, out of order
  std::vector<Expected> batch = {engine.create(), engine.create()};
  engine.grow(batch[0], *inRange<std::uint64_t>(1, 60));
  engine.grow(batch[1], *inRange<std::uint64_t>(1, 60));
  batch.push_back(engine.fork(batch[0], batch[0].num_tokens()));
  engine.grow(batch[0], 1);
  engine.grow(batch[2], *inRange<std::uint64_t>(1, 8));
  engine.check(batch, window);
  engine.free(batch[0]);
  batch.erase(batch.begin());
  engine.grow(batch[0], 1);
  engine.check(batch, window);
}

}  // namespace
}  // namespace kvarto
