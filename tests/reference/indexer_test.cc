// The indexer of every instruction set and arithmetic, against double precision and golden vectors.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "attention/runner_state.h"
#include "kernels/dispatch.h"
#include "reference/latent_vectors.h"
#include "reference/sparse_case.h"

namespace kvarto::test {
namespace {

using Rows = std::vector<std::uint32_t>;

class IndexerOnEveryIsa : public testing::TestWithParam<Isa> {
 protected:
  static Selection select(const SelectCall& call, std::uint32_t num_threads = 1,
                          SelectReport* report = nullptr) {
    RunnerOptions options;
    options.num_threads = num_threads;
    RunnerState state(kernel_table(GetParam()), options);
    Selection selection;
    const Result<SelectReport> result = select_with(state, call, selection);
    EXPECT_TRUE(result.has_value()) << result.error().message;
    if (report != nullptr) *report = *result;
    return selection;
  }
  static Rows rows_of(const Selection& selection, std::size_t query) {
    const auto rows = selection.queries()[query];
    return {rows.begin(), rows.end()};
  }
  static void expect_best_rows(const SparseCase& sparse, IndexArith arith) {
    const LayerView view = sparse.index_view();
    const Selection selection = select(sparse.select_call(view, arith), 2);
    const std::size_t heads = sparse.shape.index_heads;
    const std::size_t dim = sparse.shape.index_dim;
    ASSERT_EQ(selection.queries().size(), sparse.sequences.size());
    for (std::size_t s = 0; s < sparse.sequences.size(); ++s) {
      const std::vector<float> keys = sparse.index_keys(s);
      const ExactScores exact =
          exact_scores({.q = std::span(sparse.index_q).subspan(s * heads * dim, heads * dim),
                        .weights = std::span(sparse.index_weights).subspan(s * heads, heads),
                        .keys = keys,
                        .arith = arith});
      EXPECT_EQ(selection_error(exact, sparse.shape.lengths[s], sparse.shape.top_k,
                                selection.queries()[s]),
                "")
          << "sequence " << s << " " << sparse.shape.index_type << " " << index_arith_name(arith);
    }
  }
};

TEST_P(IndexerOnEveryIsa, SelectsTheLargestScoresOfEveryTypeLayoutAndBlock) {
  std::uint64_t seed = 1;
  for (const IndexArith arith : {IndexArith::kF32, IndexArith::kInt16}) {
    for (const char* type : {"fp8", "bf16", "f16", "f32", "q8_0", "int8"}) {
      for (const std::uint64_t block_size : {16, 5, 64}) {
        for (const Layout layout : {Layout::kHardware, Layout::kGeneric}) {
          SparseShape shape;
          shape.index_type = type;
          shape.block_size = block_size;
          shape.layout = layout;
          shape.lengths = {1, 17, 150, 0};
          shape.seed = ++seed;
          expect_best_rows(SparseCase(shape), arith);
        }
      }
    }
  }
}

TEST_P(IndexerOnEveryIsa, HandlesEveryNumberOfHeadsAndElements) {
  for (const IndexArith arith : {IndexArith::kF32, IndexArith::kInt16}) {
    for (const std::uint32_t heads : {1u, 15u, 16u, 31u, 64u, 80u}) {
      for (const std::uint32_t dim : {1u, 7u, 32u, 96u, 128u, 160u}) {
        SparseShape shape;
        shape.index_heads = heads;
        shape.index_dim = dim;
        shape.lengths = {70};
        shape.seed = heads * 1000 + dim;
        expect_best_rows(SparseCase(shape), arith);
      }
    }
  }
}

TEST_P(IndexerOnEveryIsa, SelectsTheSameRowsWithEveryNumberOfThreads) {
  SparseShape shape;
  shape.lengths = {3000, 20, 700};
  shape.top_k = 100;
  const SparseCase sparse(shape);
  const LayerView view = sparse.index_view();
  for (const IndexArith arith : {IndexArith::kF32, IndexArith::kInt16}) {
    const Selection one = select(sparse.select_call(view, arith), 1);
    for (const std::uint32_t num_threads : {2u, 3u, 5u}) {
      const Selection many = select(sparse.select_call(view, arith), num_threads);
      for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(rows_of(many, s), rows_of(one, s));
    }
  }
}

TEST_P(IndexerOnEveryIsa, PrefillSelectsWhatDecodeStepsSelect) {
  SparseShape shape;
  shape.lengths = {90};
  const SparseCase sparse(shape);
  const LayerView view = sparse.index_view();
  // As many queries as do not fit into one job, of random numbers.
  constexpr std::uint64_t kQueries = 50;
  const std::size_t width = std::size_t{shape.index_heads} * shape.index_dim;
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> q(kQueries * width);
  std::vector<float> weights(kQueries * shape.index_heads);
  for (float& each : q) each = normal(random);
  for (float& each : weights) each = normal(random);
  SelectCall call = sparse.select_call(view, IndexArith::kF32);
  call.q = q;
  call.weights = weights;
  call.q_lens = std::span(&kQueries, 1);
  const Selection together = select(call, 2);
  ASSERT_EQ(together.queries().size(), kQueries);
  for (std::uint64_t i = 0; i < kQueries; ++i) {
    SequenceView sequence = view.cache().sequences[0];
    sequence.num_tokens = shape.lengths[0] - kQueries + i + 1;
    SelectCall one = sparse.select_call(view, IndexArith::kF32);
    one.view.sequences = std::span(&sequence, 1);
    one.q = std::span(q).subspan(i * width, width);
    one.weights = std::span(weights).subspan(i * shape.index_heads, shape.index_heads);
    EXPECT_EQ(rows_of(together, i), rows_of(select(one), 0)) << "query " << i;
  }
}

TEST_P(IndexerOnEveryIsa, TakesTheFirstOfEqualScores) {
  SparseShape shape;
  shape.top_k = 10;
  SparseCase sparse(shape);
  const std::vector<float> key(shape.index_dim, 0.5f);
  for (std::uint64_t row = 0; row < shape.lengths[0]; ++row) sparse.write_index_key(0, row, key);
  const LayerView view = sparse.index_view();
  Rows first(10);
  std::iota(first.begin(), first.end(), 0u);
  for (const IndexArith arith : {IndexArith::kF32, IndexArith::kInt16}) {
    EXPECT_EQ(rows_of(select(sparse.select_call(view, arith)), 0), first);
  }
}

TEST_P(IndexerOnEveryIsa, TakesKeysOfNanLast) {
  for (const char* type : {"fp8", "bf16", "f32"}) {
    SparseShape shape;
    shape.index_type = type;
    shape.index_heads = 64;
    shape.lengths = {40};
    shape.top_k = 30;
    SparseCase sparse(shape);
    std::vector<float> key(shape.index_dim, 0.5f);
    key[77] = NAN;
    Rows numbers;
    for (std::uint32_t row = 0; row < 40; ++row) {
      if (row % 4 == 1) sparse.write_index_key(0, row, key);
      if (row % 4 != 1) numbers.push_back(row);
    }
    const LayerView view = sparse.index_view();
    for (const IndexArith arith : {IndexArith::kF32, IndexArith::kInt16}) {
      EXPECT_EQ(rows_of(select(sparse.select_call(view, arith)), 0), numbers) << type;
    }
  }
}

TEST_P(IndexerOnEveryIsa, ReadsEveryIndexKeyOnceInADecodeStep) {
  SparseShape shape;
  shape.lengths = {100, 33};
  const SparseCase sparse(shape);
  const LayerView view = sparse.index_view();
  SelectReport report;
  static_cast<void>(select(sparse.select_call(view, IndexArith::kF32), 2, &report));
  EXPECT_EQ(report.rows_read, 133u);
  EXPECT_EQ(report.bytes_read, 133u * 132);  // 128 e4m3 and an f32 scale
  EXPECT_EQ(report.rows_selected, 32u);
  EXPECT_EQ(report.num_queries, 2u);
}

// Rows of f32 in one block, as an engine of its own would keep them.
struct OwnKeys {
  explicit OwnKeys(const LatentVectors& vectors) : dim(vectors.index_dim) {
    keys = vectors.array("index_k");
    sequence = {.block_table = table, .num_tokens = vectors.tokens};
  }
  [[nodiscard]] CacheView view() const {
    CacheView view;
    view.k.base = reinterpret_cast<const std::byte*>(keys.data());
    view.k.layout.row_stride_bytes = dim * sizeof(float);
    view.k.codec = Codec::kF32;
    view.k.heads = 1;
    view.k.width = dim;
    view.rows_per_block = static_cast<std::uint32_t>(sequence.num_tokens);
    view.sequences = std::span(&sequence, 1);
    return view;
  }
  std::uint32_t dim;
  std::vector<float> keys;
  std::vector<std::uint32_t> table = {0};
  SequenceView sequence;
};

TEST_P(IndexerOnEveryIsa, SelectsTheRowsOfTransformers) {
  std::size_t num_cases = 0;
  for (const LatentVectors& vectors : read_latent_vectors()) {
    if (vectors.index_heads == 0 || vectors.heads == 0) continue;
    const OwnKeys keys(vectors);
    const std::uint64_t q_len = vectors.queries;
    for (const IndexArith arith : {IndexArith::kF32, IndexArith::kInt16}) {
      SelectCall call;
      call.view = keys.view();
      call.q_lens = std::span(&q_len, 1);
      call.num_index_heads = vectors.index_heads;
      call.q = vectors.array("index_q");
      call.weights = vectors.array("index_w");
      call.top_k = vectors.top_k;
      call.arith = arith;
      const Selection selection = select(call);
      for (std::size_t i = 0; i < vectors.queries; ++i) {
        if (arith == IndexArith::kF32) {
          EXPECT_EQ(rows_of(selection, i), vectors.selected[i]) << vectors.name << " query " << i;
          continue;
        }
        const std::size_t width = vectors.index_heads * vectors.index_dim;
        const ExactScores exact = exact_scores(
            {.q = call.q.subspan(i * width, width),
             .weights = call.weights.subspan(i * vectors.index_heads, vectors.index_heads),
             .keys = vectors.array("index_k"),
             .arith = arith});
        EXPECT_EQ(selection_error(exact, vectors.position(static_cast<std::uint32_t>(i)) + 1,
                                  vectors.top_k, selection.queries()[i]),
                  "");
      }
      ++num_cases;
    }
  }
  EXPECT_EQ(num_cases, 4u);
}

TEST_P(IndexerOnEveryIsa, SelectsTheRowsOfTheOfficialArithmeticFromKeysOfFp8) {
  const std::vector<LatentVectors> all = read_latent_vectors();
  const LatentVectors& vectors = all.back();
  ASSERT_EQ(vectors.name, "index_fp8");
  SparseShape shape;
  shape.index_heads = vectors.index_heads;
  shape.top_k = vectors.top_k;
  shape.lengths = {vectors.tokens};
  SparseCase sparse(shape);
  for (std::uint32_t row = 0; row < vectors.tokens; ++row) {
    sparse.write_index_key(0, row, std::span(vectors.array("index_k")).subspan(row * 128, 128));
  }
  const LayerView view = sparse.index_view();
  for (const IndexArith arith : {IndexArith::kF32, IndexArith::kInt16}) {
    SelectCall call = sparse.select_call(view, arith);
    call.q = vectors.array("index_q");
    call.weights = vectors.array("index_w");
    EXPECT_EQ(rows_of(select(call), 0), vectors.selected[0]) << index_arith_name(arith);
  }
}

// Queries in fp8 are numbers like any others: their scales go into the weights.
TEST_P(IndexerOnEveryIsa, SelectsTheRowsOfTheOfficialArithmeticForQueriesOfFp8) {
  const std::vector<LatentVectors> all = read_latent_vectors();
  const LatentVectors& vectors = all.back();
  ASSERT_EQ(vectors.name, "index_fp8");
  SparseShape shape;
  shape.index_heads = vectors.index_heads;
  shape.top_k = vectors.top_k;
  shape.lengths = {vectors.tokens};
  SparseCase sparse(shape);
  for (std::uint32_t row = 0; row < vectors.tokens; ++row) {
    sparse.write_index_key(0, row, std::span(vectors.array("index_k")).subspan(row * 128, 128));
  }
  const KernelTable& kernels = kernel_table(Isa::kScalar);
  std::vector<float> codes = vectors.array("index_q");
  std::vector<float> weights = vectors.array("index_w");
  for (std::size_t h = 0; h < vectors.index_heads; ++h) {
    std::byte image[128 + sizeof(float)];
    kernels.encode[static_cast<int>(Codec::kFp8Scaled128)](&codes[h * 128], image, 128);
    kernels.decode[static_cast<int>(Codec::kFp8E4M3)](image, &codes[h * 128], 128);
    float scale = 0;
    std::memcpy(&scale, image + 128, sizeof scale);
    weights[h] *= scale;
  }
  const ExactScores exact = exact_scores(
      {.q = codes, .weights = weights, .keys = sparse.index_keys(0), .arith = IndexArith::kF32});
  const std::vector<float>& golden = vectors.array("scores_q8");
  ASSERT_EQ(golden.size(), exact.scores.size());
  for (std::size_t i = 0; i < golden.size(); ++i) {
    EXPECT_NEAR(exact.scores[i], golden[i], std::ldexp(std::fabs(golden[i]), -22)) << i;
  }
  const LayerView view = sparse.index_view();
  for (const IndexArith arith : {IndexArith::kF32, IndexArith::kInt16}) {
    SelectCall call = sparse.select_call(view, arith);
    call.q = codes;
    call.weights = weights;
    EXPECT_EQ(rows_of(select(call), 0), vectors.selected[1]) << index_arith_name(arith);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, IndexerOnEveryIsa, testing::ValuesIn(supported_isas()),
                         [](const auto& each) { return std::string(isa_name(each.param)); });

TEST(IntegerIndexKeys, AreTheSameOnEveryIsa) {
  std::vector<std::byte> codes(256 + 128);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 7);
  std::vector<std::int16_t> expected;
  for (const Isa isa : supported_isas()) {
    std::vector<std::int16_t> keys(codes.size());
    float units[3];
    kernel_table(isa).index.int16.fill_e4m3({codes.data(), 128, 3, 128, keys.data(), units});
    if (isa == Isa::kScalar) expected = keys;
    EXPECT_EQ(keys, expected) << isa_name(isa);
  }
}

TEST(SelectLargest, EqualsASortOfEveryLength) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  TopKScratch scratch;
  for (const std::size_t count : {1u, 2u, 3u, 63u, 500u, 2047u, 2049u, 8191u, 8192u, 30000u}) {
    for (int kind = 0; kind < 4; ++kind) {
      std::vector<float> scores(count);
      for (float& score : scores) {
        score = normal(random);
        if (kind == 1) score = std::round(score * 2);
        if (kind == 2 && random() % 8 < 4) score = random() % 2 != 0 ? NAN : -INFINITY;
        if (kind == 3) score = random() % 2 != 0 ? 0.0f : -0.0f;
      }
      Rows order(count);
      std::iota(order.begin(), order.end(), 0u);
      std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        if (std::isnan(scores[a]) || std::isnan(scores[b])) {
          return !std::isnan(scores[a]) && std::isnan(scores[b]);
        }
        return scores[a] > scores[b];
      });
      for (const std::size_t wanted :
           {std::size_t{1}, count / 100, count / 9, count / 2, count - 1, count}) {
        Rows best(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(wanted));
        std::sort(best.begin(), best.end());
        Rows out(wanted);
        select_largest(scores, out, scratch);
        EXPECT_EQ(out, best) << count << " scores, kind " << kind << ", " << wanted << " wanted";
      }
    }
  }
}

// A sample of every 64th score tells nothing here.
TEST(SelectLargest, IsRightWhereEvery64thScoreIsTheLargest) {
  std::vector<float> scores(64000, 1.0f);
  for (std::size_t i = 0; i < scores.size(); i += 64) scores[i] = 5;
  Rows out(2000);
  TopKScratch scratch;
  select_largest(scores, out, scratch);
  std::size_t num_large = 0;
  for (const std::uint32_t row : out) num_large += scores[row] == 5 ? 1 : 0;
  EXPECT_EQ(num_large, 1000u);
  EXPECT_TRUE(std::is_sorted(out.begin(), out.end()));
}

TEST(Select, RefusesWhatDoesNotFit) {
  const SparseCase sparse((SparseShape()));
  const LayerView view = sparse.index_view();
  AttentionRunner runner = AttentionRunner::create({}).value();
  const auto message_of = [&](const auto& change) {
    SelectCall call = sparse.select_call(view, IndexArith::kF32);
    change(call);
    Selection selection;
    const auto result = runner.select(call, selection);
    return result.has_value() ? std::string("none") : result.error().message;
  };
  EXPECT_EQ(message_of([](SelectCall&) {}), "none");
  EXPECT_EQ(message_of([](SelectCall& call) { call.top_k = 0; }),
            "top_k: found 0, expected 1 or more");
  EXPECT_EQ(message_of([](SelectCall& call) { call.num_index_heads = 0; }),
            "num_index_heads: found 0, expected 1 to 4096");
  EXPECT_EQ(message_of([](SelectCall& call) { call.q = call.q.first(7); }),
            "q: found 7 values, expected 1 x 640");
  EXPECT_EQ(message_of([](SelectCall& call) { call.view.k.heads = 2; }),
            "index keys: heads: found 2, expected 1");
  EXPECT_EQ(message_of([](SelectCall& call) { call.view.k.codec = Codec::kBit; }),
            "index keys: codec: found bit, which cannot be read");
  const std::uint64_t too_many = 101;
  EXPECT_EQ(message_of([&](SelectCall& call) { call.q_lens = std::span(&too_many, 1); }),
            "q_lens: found 101 for sequence 0, expected at most its 100 tokens");
  EXPECT_EQ(message_of([](SelectCall& call) { call.view.k.base = nullptr; }),
            "index keys: base: found null");
}

}  // namespace
}  // namespace kvarto::test
