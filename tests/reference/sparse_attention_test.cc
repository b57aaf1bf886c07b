// Attention over rows that an indexer picks, over a cache of latent rows and index keys.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "attention/runner_state.h"
#include "kernels/dispatch.h"
#include "kernels/reference.h"
#include "reference/latent_vectors.h"
#include "reference/sparse_case.h"
#include "reference/tolerance.h"
#include "spec/architectures.h"

namespace kvarto::test {
namespace {

using Selections = std::vector<std::span<const std::uint32_t>>;

struct Attended {
  std::vector<float> out;
  AttentionReport report;
};

// Decode over the latent rows of a case, of all rows where `selections` is empty.
Attended attend(const LayerView& view, std::uint32_t q_heads, std::span<const float> q,
                std::span<const std::span<const std::uint32_t>> selections) {
  RunnerOptions options;
  options.num_threads = 2;
  AttentionRunner runner = AttentionRunner::create(options).value();
  DecodeCall call;
  call.view = view.cache();
  call.num_q_heads = q_heads;
  call.q = q;
  call.selections = selections;
  const std::size_t v_dim = call.view.v.width + call.view.v_tail.width;
  Attended attended;
  attended.out.resize(call.view.sequences.size() * q_heads * v_dim);
  call.out = attended.out;
  const Result<AttentionReport> report = runner.decode(call);
  EXPECT_TRUE(report.has_value()) << report.error().message;
  if (report.has_value()) attended.report = *report;
  return attended;
}

struct Picked {
  Selection selection;
  SelectReport report;
};

Picked select(const SparseCase& sparse) {
  AttentionRunner runner = AttentionRunner::create({}).value();
  const LayerView view = sparse.index_view();
  Picked picked;
  picked.report =
      runner.select(sparse.select_call(view, IndexArith::kF32), picked.selection).value();
  return picked;
}

std::vector<float> absorbed_queries(const SparseCase& sparse) {
  std::mt19937_64 random(99);
  std::normal_distribution<float> normal;
  std::vector<float> q(sparse.sequences.size() * sparse.shape.q_heads *
                       (sparse.shape.latent_dim + sparse.shape.rope_dim));
  for (float& value : q) value = normal(random);
  return q;
}

LayerView latent_view(const SparseCase& sparse) {
  return sparse.cache.view(sparse.latent, sparse.latent, sparse.sequences).value();
}

class SparseTypes : public testing::TestWithParam<const char*> {};

// 16 query heads and more go through other kernels than fewer do.
TEST_P(SparseTypes, EqualDenseAttentionWhileTheRowsAreNoMoreThanTopK) {
  for (const std::uint32_t q_heads : {4u, 16u, 40u}) {
    SparseShape shape;
    shape.q_heads = q_heads;
    shape.type = GetParam();
    shape.latent_dim = 128;
    shape.rope_dim = 32;
    shape.rope_dim = 32;
    shape.lengths = {1, 63, 150, 200};
    shape.top_k = 200;
    const SparseCase sparse(shape);
    const Picked picked = select(sparse);
    const std::vector<float> q = absorbed_queries(sparse);
    const LayerView view = latent_view(sparse);
    const Attended chosen = attend(view, q_heads, q, picked.selection.queries());
    const Attended dense = attend(view, q_heads, q, {});
    EXPECT_EQ(chosen.out, dense.out) << q_heads << " heads";
    EXPECT_EQ(chosen.report.rows_read, dense.report.rows_read);
  }
}

TEST_P(SparseTypes, AgreeWithDoublePrecisionOverTheRowsSelected) {
  SparseShape shape;
  shape.type = GetParam();
  shape.latent_dim = 128;
  shape.rope_dim = 32;
  shape.lengths = {40, 300};
  for (const std::uint32_t q_heads : {3u, 16u}) {
    shape.q_heads = q_heads;
    const SparseCase sparse(shape);
    const Picked picked = select(sparse);
    const std::vector<float> q = absorbed_queries(sparse);
    const Attended chosen = attend(latent_view(sparse), q_heads, q, picked.selection.queries());
    const std::size_t width = shape.latent_dim + shape.rope_dim;
    for (std::size_t s = 0; s < shape.lengths.size(); ++s) {
      std::vector<float> rows(shape.lengths[s] * width);
      ASSERT_TRUE(sparse.cache.read(sparse.sequences[s], sparse.latent, 0, rows).has_value());
      std::vector<float> keys;
      std::vector<float> values;
      ErrorTerms terms{.dim = width, .rows = shape.top_k};
      double largest_value = 0;
      for (const std::uint32_t row : picked.selection.queries()[s]) {
        const auto key = std::span(rows).subspan(row * width, width);
        keys.insert(keys.end(), key.begin(), key.end());
        values.insert(values.end(), key.begin(), key.begin() + shape.latent_dim);
      }
      for (const float value : values)
        largest_value = std::max(largest_value, double{std::fabs(value)});
      for (std::uint32_t head = 0; head < q_heads; ++head) {
        ReferenceCall call;
        call.q = std::span(q).subspan((s * q_heads + head) * width, width);
        call.k = keys;
        call.v = values;
        call.qk_dim = width;
        call.v_dim = shape.latent_dim;
        call.end_row = picked.selection.queries()[s].size();
        call.scale = 1 / std::sqrt(static_cast<double>(width));
        for (std::uint64_t row = 0; row < call.end_row; ++row) {
          double dot = 0;
          for (std::size_t d = 0; d < width; ++d) {
            dot += std::fabs(call.scale * call.q[d] * keys[row * width + d]);
          }
          terms.largest_dot = std::max(terms.largest_dot, dot);
        }
        const ReferenceResult exact = reference_attention(call);
        for (std::uint32_t d = 0; d < shape.latent_dim; ++d) {
          ASSERT_NEAR(chosen.out[(s * q_heads + head) * shape.latent_dim + d], exact.out[d],
                      output_tolerance(terms) * largest_value);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SparseTypes,
                         testing::Values("f32", "f16", "bf16", "int8", "q8_0", "fp8_ds_mla"));

TEST(SparseAttention, RowsThatAreNotSelectedMayHoldNan) {
  for (const std::uint32_t q_heads : {4u, 16u}) {
    SparseShape shape;
    shape.q_heads = q_heads;
    shape.lengths = {200, 90};
    SparseCase sparse(shape);
    const Picked picked = select(sparse);
    const std::vector<float> q = absorbed_queries(sparse);
    const LayerView view = latent_view(sparse);
    const std::vector<float> before = attend(view, q_heads, q, picked.selection.queries()).out;
    const std::vector<float> poison(shape.latent_dim + shape.rope_dim, NAN);
    for (std::size_t s = 0; s < shape.lengths.size(); ++s) {
      const auto rows = picked.selection.queries()[s];
      for (std::uint32_t row = 0; row < shape.lengths[s]; ++row) {
        if (std::binary_search(rows.begin(), rows.end(), row)) continue;
        const RowSource source{Codec::kF32, std::as_bytes(std::span(poison))};
        ASSERT_TRUE(
            sparse.cache.write(sparse.sequences[s], sparse.latent, row, source).has_value());
      }
    }
    EXPECT_EQ(attend(view, q_heads, q, picked.selection.queries()).out, before);
    EXPECT_TRUE(std::isnan(attend(view, q_heads, q, {}).out.front())) << "nothing was poisoned";
  }
}

const Stream& stream_named(const KvCache& cache, std::string_view name) {
  const std::vector<Stream>& streams = cache.model().groups.front().streams;
  return *std::find_if(streams.begin(), streams.end(),
                       [&](const Stream& stream) { return stream.name == name; });
}

RC_GTEST_PROP(SparseAttention, ReadsTheRowsAndBytesThatThePlanCounts, ()) {
  SparseShape shape;
  shape.lengths = {*rc::gen::inRange<std::uint64_t>(1, 400),
                   *rc::gen::inRange<std::uint64_t>(1, 90)};
  shape.top_k = *rc::gen::inRange<std::uint64_t>(1, 300);
  shape.latent_dim = 128;
  shape.rope_dim = 32;
  shape.type = *rc::gen::element<std::string>("bf16", "f16", "int8", "fp8_ds_mla");
  shape.block_size = *rc::gen::element<std::uint64_t>(1, 16, 23);
  shape.layout = *rc::gen::element(Layout::kHardware, Layout::kGeneric);
  const SparseCase sparse(shape);
  const Picked picked = select(sparse);
  const Attended chosen = attend(latent_view(sparse), shape.q_heads, absorbed_queries(sparse),
                                 picked.selection.queries());
  const Stream& index = stream_named(sparse.cache, "index_key");
  const Stream& latent = stream_named(sparse.cache, "latent");
  std::uint64_t index_rows = 0;
  std::uint64_t latent_rows = 0;
  for (const std::uint64_t length : shape.lengths) {
    index_rows += rows_read(index, length);
    latent_rows += rows_read(latent, length);
  }
  RC_ASSERT(picked.report.rows_read == index_rows);
  RC_ASSERT(picked.report.rows_seen == index_rows);
  RC_ASSERT(picked.report.bytes_read == index_rows * row_bytes(index).total());
  RC_ASSERT(picked.report.rows_selected == latent_rows);
  RC_ASSERT(chosen.report.rows_read == latent_rows);
  RC_ASSERT(chosen.report.bytes_read == latent_rows * row_bytes(latent).total());
}

// Two layers, the second of which owns no index keys.
TEST(SparseAttention, ALayerMayReuseTheSelectionOfAnother) {
  const LatentShape latent{.q_heads = 4, .latent_dim = 32, .rope_dim = 16};
  IndexerShape indexer{.heads = 3, .dim = 32, .top_k = 5};
  const LayerSpec full = dsa_layer(latent, indexer);
  indexer.selection_layer = 0;
  ModelSpec model;
  model.num_layers = 2;
  model.groups = group_layers({full, dsa_layer(latent, indexer)});
  model = with_types(model, {"f32", "f32", ""}).value();
  CacheOptions options;
  options.context = 32;
  KvCache cache = KvCache::create(model, options).value();
  EXPECT_TRUE(cache.find_stream(0, "index_key").has_value());
  EXPECT_FALSE(cache.find_stream(1, "index_key").has_value());
  EXPECT_EQ(model.groups[1].streams.front().selection_layer, 0u);
  const SequenceId sequence = cache.create_sequence().value();
  ASSERT_EQ(cache.append(sequence, 30).value(), Grant::kDone);
  const StreamId rows = cache.find_stream(1, "latent").value();
  // Row i of layer 1 is all i: attention over {4, 9} lies between them, whatever the scores.
  for (std::uint64_t i = 0; i < 30; ++i) {
    const std::vector<float> row(48, static_cast<float>(i));
    ASSERT_TRUE(cache.write(sequence, rows, i, {Codec::kF32, std::as_bytes(std::span(row))}));
  }
  const std::vector<std::uint32_t> picked = {4, 9};
  const Selections selections = {picked};
  const LayerView view = cache.view(rows, rows, std::span(&sequence, 1)).value();
  const Attended chosen = attend(view, 4, std::vector<float>(4 * 48, 0.0f), selections);
  for (const float value : chosen.out) EXPECT_FLOAT_EQ(value, 6.5f);
  EXPECT_EQ(chosen.report.rows_read, 2u);
}

// A cache with the rows of golden vectors.
struct GoldenCache {
  explicit GoldenCache(const LatentVectors& given) : vectors(given), cache(make(given)) {
    sequence = cache.create_sequence().value();
    static_cast<void>(cache.append(sequence, vectors.tokens).value());
    latent = cache.find_stream(0, "latent").value();
    const std::size_t width = vectors.latent + vectors.rope;
    std::vector<float> rows;
    for (std::size_t t = 0; t < vectors.tokens; ++t) {
      add(rows, vectors.array("latent"), t * vectors.latent, vectors.latent);
      add(rows, vectors.array("rope"), t * vectors.rope, vectors.rope);
    }
    write(latent, rows);
    if (vectors.index_heads != 0) {
      index_key = cache.find_stream(0, "index_key").value();
      write(index_key, vectors.array("index_k"));
    }
    // W_UK of a head brings its query into the latent's space.
    for (std::size_t i = 0; i < std::size_t{vectors.queries} * vectors.heads; ++i) {
      const std::size_t head = i % vectors.heads;
      for (std::size_t l = 0; l < vectors.latent; ++l) {
        double sum = 0;
        for (std::size_t n = 0; n < vectors.nope; ++n) {
          sum += double{vectors.array("q_nope")[i * vectors.nope + n]} *
                 vectors.array("w_uk")[(head * vectors.nope + n) * vectors.latent + l];
        }
        q.push_back(static_cast<float>(sum));
      }
      add(q, vectors.array("q_rope"), i * vectors.rope, vectors.rope);
    }
    EXPECT_EQ(q.size(), std::size_t{vectors.queries} * vectors.heads * width);
  }

  static KvCache make(const LatentVectors& vectors) {
    const LatentShape latent{
        .q_heads = vectors.heads, .latent_dim = vectors.latent, .rope_dim = vectors.rope};
    ModelSpec model;
    model.num_layers = 1;
    model.groups =
        group_layers({vectors.index_heads == 0 ? mla_layer(latent)
                                               : dsa_layer(latent, {.heads = vectors.index_heads,
                                                                    .dim = vectors.index_dim,
                                                                    .top_k = vectors.top_k})});
    CacheOptions options;
    options.context = vectors.tokens;
    return KvCache::create(with_types(model, {"f32", "f32", "f32"}).value(), options).value();
  }
  static void add(std::vector<float>& to, const std::vector<float>& from, std::size_t begin,
                  std::size_t count) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
    to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(count));
  }
  void write(StreamId stream, const std::vector<float>& rows) {
    const RowSource source{Codec::kF32, std::as_bytes(std::span(rows))};
    EXPECT_TRUE(cache.write(sequence, stream, 0, source).has_value());
  }

  // W_UV of a head applied to what attention over latents gave.
  [[nodiscard]] std::vector<double> expand(const std::vector<float>& out) const {
    std::vector<double> values;
    for (std::size_t i = 0; i < std::size_t{vectors.queries} * vectors.heads; ++i) {
      const std::size_t head = i % vectors.heads;
      for (std::size_t d = 0; d < vectors.v; ++d) {
        double sum = 0;
        for (std::size_t l = 0; l < vectors.latent; ++l) {
          sum += double{out[i * vectors.latent + l]} *
                 vectors.array("w_uv")[(head * vectors.v + d) * vectors.latent + l];
        }
        values.push_back(sum);
      }
    }
    return values;
  }

  const LatentVectors& vectors;
  KvCache cache;
  SequenceId sequence{};
  StreamId latent{};
  StreamId index_key{};
  std::vector<float> q;  // absorbed, [queries][heads][latent + rope]
};

// What transformers selects and returns, through index scores, selection and attention over a
// cache; the layer that shares a selection takes that of the layer before it.
TEST(SparseAttention, GivesTheOutputsOfTransformers) {
  const std::vector<LatentVectors> all = read_latent_vectors();
  std::size_t num_checked = 0;
  Selection selection;
  for (const LatentVectors& vectors : all) {
    if (vectors.heads == 0) continue;
    const GoldenCache golden(vectors);
    AttentionRunner runner = AttentionRunner::create({}).value();
    const std::uint64_t q_len = vectors.queries;
    if (vectors.index_heads != 0) {
      const LayerView keys =
          golden.cache.view(golden.index_key, golden.index_key, std::span(&golden.sequence, 1))
              .value();
      SelectCall call;
      call.view = keys.cache();
      call.q_lens = std::span(&q_len, 1);
      call.num_index_heads = vectors.index_heads;
      call.q = vectors.array("index_q");
      call.weights = vectors.array("index_w");
      call.top_k = vectors.top_k;
      ASSERT_TRUE(runner.select(call, selection).has_value());
    }
    const LayerView view =
        golden.cache.view(golden.latent, golden.latent, std::span(&golden.sequence, 1)).value();
    const std::vector<SequenceView> queries =
        query_views(view.cache().sequences, std::span(&q_len, 1));
    ASSERT_EQ(queries.size(), q_len);
    std::vector<float> out(q_len * vectors.heads * vectors.latent);
    DecodeCall call;
    call.view = view.cache();
    call.view.sequences = queries;
    call.num_q_heads = vectors.heads;
    call.q = golden.q;
    call.options.scale = vectors.array("scale")[0];
    call.out = out;
    if (vectors.top_k != 0) call.selections = selection.queries();
    const auto report = runner.decode(call);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    const std::vector<double> values = golden.expand(out);
    for (std::size_t i = 0; i < values.size(); ++i, ++num_checked) {
      ASSERT_NEAR(values[i], vectors.array("out")[i], latent_tolerance(vectors)) << vectors.name;
    }
  }
  EXPECT_EQ(num_checked, 5u * 6 * 4 * 10);
}

}  // namespace
}  // namespace kvarto::test
