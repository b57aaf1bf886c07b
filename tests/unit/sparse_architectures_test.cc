#include <gtest/gtest.h>

#include "kvarto/tracks.h"
#include "spec/architectures.h"
#include "unit/cost_sums.h"

namespace kvarto {
namespace {

// The heads of Llama-3.1-8B: 32 query heads, 8 KV heads of 128.
const DenseShape kDense{.q_heads = 32, .kv_heads = 8, .qk_dim = 128, .v_dim = 128};

ModelSpec one_layer(const LayerSpec& layer) { return typed(model_of({layer})); }

TEST(Multilevel, AddsOneAggregateForEveryGroup) {
  const ModelSpec model = one_layer(multilevel_layer({.dense = kDense, .group = 16}));
  EXPECT_EQ(words(stream_named(model, "k")), "never all any head");
  EXPECT_EQ(words(stream_named(model, "k1")), "never none any head");
  EXPECT_EQ(stream_named(model, "v1").born_from, "v");
  EXPECT_EQ(slope_of(model), 4096 + 4096 / 16);
}

TEST(Multilevel, KeepsLevelZeroForTheWindowAndTheGroupItBeginsIn) {
  DenseShape dense = kDense;
  dense.window = 100;
  const ModelSpec model = one_layer(multilevel_layer({.dense = dense, .group = 16, .ttl = 640}));
  EXPECT_EQ(words(stream_named(model, "v")), "window(115) window(100) resident head");
  EXPECT_EQ(words(stream_named(model, "v1")), "ttl(640) all resident head");
}

// With n tokens, level 0 begins at s = floor(max(0, n - w) / m) m; the groups before s are read.
TEST(Multilevel, ReadsEveryTokenExactlyOnceWithoutATtl) {
  DenseShape dense = kDense;
  dense.window = 100;
  const LayerSpec layer = multilevel_layer({.dense = dense, .group = 16});
  for (std::uint64_t n : {1u, 99u, 100u, 101u, 115u, 116u, 117u, 131u, 132u, 1000u, 4097u}) {
    const std::uint64_t start = (n > 100 ? n - 100 : 0) / 16 * 16;
    EXPECT_EQ(rows_read(layer.streams[0], n), n - start) << n;
    EXPECT_EQ(rows_read(layer.streams[2], n), start / 16) << n;
  }
}

// Blocks of 16 rows: f32 sums and sums of squares of 8 x 128 keys; one bit a block and KV head.
TEST(Dynamic, KeepsSumsOfKeysAndAMaskOfOneStep) {
  const ModelSpec model = one_layer(dynamic_layer({.dense = kDense, .ratio = 0.25, .block = 16}));
  const Stream stats = stream_named(model, "key_stats");
  EXPECT_EQ(row_bytes(stats).total(), 2u * 8 * 128 * 4);
  EXPECT_EQ(stats.tokens_per_row, 16u);
  EXPECT_EQ(words(stats), "never all any head");
  const Stream mask = stream_named(model, "mask");
  EXPECT_EQ(words(mask), "step all any head");
  // 8,192 tokens are 512 blocks: 64 bytes a KV head.
  EXPECT_EQ(row_bytes(mask).total() * peak_rows(mask, 8192), 8u * 64);
  EXPECT_EQ(peak_rows(mask, 1), 1u);
  EXPECT_EQ(slope_of(model), 4096 + 512);
  EXPECT_EQ(words(stream_named(model, "k")), "never ratio(0.25) any head");
}

// max(ceil(r B), min(2, B)) of B blocks.
TEST(Dynamic, ReadsItsShareOfTheBlocksButAtLeastTwo) {
  const Stream k = dynamic_layer({.dense = kDense, .ratio = 0.25, .block = 16}).streams.front();
  EXPECT_EQ(rows_read(k, 1600), 25u * 16);
  EXPECT_EQ(rows_read(k, 1616), 26u * 16);
  EXPECT_EQ(rows_read(k, 64), 32u);
  EXPECT_EQ(rows_read(k, 5), 5u);
}

// Quest: 2 d_k a head and page of 16: an eighth of K, a sixteenth of K and V.
TEST(BlockSparse, HasTheSummariesOfQuest) {
  const ModelSpec model =
      one_layer(block_sparse_layer({.dense = kDense,
                                    .summary = BlockSparseShape::Summary::kMinMax,
                                    .block = 16,
                                    .budget = 2048}));
  EXPECT_EQ(slope_of(model), 4096 + 4096 / 16);
  EXPECT_EQ(words(stream_named(model, "k")), "never blocks(2048) any head");
  EXPECT_EQ(words(stream_named(model, "block_summary")), "never all any head");
  EXPECT_EQ(model.groups.front().architecture, "quest");
}

TEST(BlockSparse, NeverQuantisesTheBoundsOfAQuantisedKey) {
  const ModelSpec model = model_of({block_sparse_layer(
      {.dense = kDense, .summary = BlockSparseShape::Summary::kMinMax, .block = 16})});
  const auto summary = [&](const char* type) {
    return row_bytes(stream_named(typed(model, {type, type, ""}), "block_summary")).total();
  };
  EXPECT_EQ(summary("q8_0"), 2u * 8 * 128 * 2);
  EXPECT_EQ(summary("f32"), 2u * 8 * 128 * 4);
}

TEST(BlockSparse, HasTheMeansOfMoba) {
  const ModelSpec model = one_layer(block_sparse_layer({.dense = kDense,
                                                        .summary = BlockSparseShape::Summary::kMean,
                                                        .block = 512,
                                                        .budget = 3 * 512}));
  EXPECT_EQ(slope_of(model), 4096 + 2048.0 / 512);
  EXPECT_EQ(model.groups.front().architecture, "moba");
}

// NSA paper: n / 16 + 16 x 64 + 512 token equivalents a step.
TEST(BlockSparse, ReadsThePublishedTokensOfNsa) {
  DenseShape dense = kDense;
  dense.window = 512;
  const LayerSpec layer = block_sparse_layer(
      {.dense = dense, .summary = BlockSparseShape::Summary::kNsa, .block = 64, .budget = 16 * 64});
  const auto read = [&](std::uint64_t n) {
    return rows_read(layer.streams[0], n) + rows_read(layer.streams[2], n);
  };
  EXPECT_EQ(read(8192), 2048u);
  EXPECT_EQ(read(16'384), 2560u);
  EXPECT_EQ(read(32'768), 3584u);
  EXPECT_EQ(read(65'536), 5632u);
  EXPECT_EQ(slope_of(one_layer(layer)), 4096 + 4096 / 16);
  EXPECT_EQ(to_string(layer.streams[0].lifetime), "never");
}

// MiniMax-M3: 57 of 60 layers have one bf16 index key of 128 for each token: 14,592 bytes.
TEST(BlockSparse, HasTheIndexKeysOfMiniMaxM3) {
  DenseShape dense{.q_heads = 64, .kv_heads = 4, .qk_dim = 128, .v_dim = 128};
  std::vector<LayerSpec> layers(3, dense_layer(dense));
  layers.resize(60, block_sparse_layer({.dense = dense,
                                        .summary = BlockSparseShape::Summary::kIndexKey,
                                        .block = 128,
                                        .budget = 16 * 128,
                                        .index_heads = 4,
                                        .index_dim = 128}));
  const ModelSpec model = typed(model_of(layers));
  EXPECT_EQ(slope_of(model), 122'880 + 14'592);
  EXPECT_EQ(words(stream_named(model, "index_key")), "never all any replicate");
}

TEST(Eviction, KeepsABudgetOfRowsWithTheirPositions) {
  const ModelSpec model = one_layer(eviction_layer(kDense, 1028));
  EXPECT_EQ(words(stream_named(model, "k")), "kept(1028) all resident head");
  EXPECT_EQ(row_bytes(stream_named(model, "position")).total(), 4u);
  EXPECT_EQ(fixed_of(model), 1028u * (4096 + 4));
}

// KIVI: 3.0 bits an element with 2-bit codes, 5.0 with 4-bit codes; a 128-element row 48 and 80 B.
TEST(TailQuantised, HasThePublishedBitsOfKivi) {
  const auto slope = [](std::uint32_t bits) {
    return slope_of(one_layer(tail_quantised_layer({.dense = kDense, .bits = bits})));
  };
  EXPECT_EQ(slope(2), 2 * 8 * 48);
  EXPECT_EQ(slope(4), 2 * 8 * 80);
}

TEST(TailQuantised, KeepsTheNewestTokensInHalfPrecision) {
  const ModelSpec model = one_layer(tail_quantised_layer({.dense = kDense}));
  EXPECT_EQ(words(stream_named(model, "tail_v")), "window(128) all resident head");
  EXPECT_EQ(words(stream_named(model, "tail_k")), "window(159) all resident head");
  EXPECT_EQ(stream_named(model, "k").born_from, "tail_k");
  const Stream k = stream_named(model, "k");
  const Stream v = stream_named(model, "v");
  EXPECT_EQ(resident_rows(v, 128), 0u);
  EXPECT_EQ(resident_rows(v, 129), 1u);
  EXPECT_EQ(resident_rows(k, 159), 0u);
  EXPECT_EQ(resident_rows(k, 160), 1u);
}

TEST(TailQuantised, FormsATrackOfItsOwnForEveryBirth) {
  const auto tracks = make_tracks(one_layer(tail_quantised_layer({.dense = kDense})), 32);
  ASSERT_TRUE(tracks.has_value());
  ASSERT_EQ(tracks->size(), 4u);
  EXPECT_EQ(resident_blocks(tracks->at(0), 160), 1u);
  EXPECT_EQ(resident_blocks(tracks->at(1), 128), 0u);
  EXPECT_EQ(resident_blocks(tracks->at(1), 129), 1u);
}

// Qwen3-Next: (k - 1)(2 Hk dk + Hv dv) bf16 and Hv dv dk f32 in each of 36 layers.
TEST(State, HasThePublishedBytesOfQwen3Next) {
  StateShape shape;
  shape.architecture = "gdn";
  shape.conv = {{"q", 16, 3 * 128}, {"k", 16, 3 * 128}, {"v", 32, 3 * 128}};
  shape.state = {{"state", 32, 128 * 128}};
  const auto bytes = [&](Codec conv, Codec state) {
    shape.conv_codec = conv;
    shape.state_codec = state;
    return fixed_of(typed(model_of(std::vector<LayerSpec>(36, state_layer(shape)))));
  };
  EXPECT_EQ(bytes(Codec::kBF16, Codec::kF32), 77'266'944u);
  EXPECT_EQ(bytes(Codec::kF32, Codec::kF32), 79'036'416u);
  EXPECT_EQ(bytes(Codec::kBF16, Codec::kBF16), 39'518'208u);
}

TEST(State, IsConstantAndNeedsASnapshotToGoBack) {
  StateShape shape;
  shape.architecture = "mamba2";
  shape.conv = {{"x", 64, 3 * 64}, {"b_c", 8, 3 * 2 * 128}};
  shape.state = {{"state", 64, 64 * 128}};
  const ModelSpec model = one_layer(state_layer(shape));
  EXPECT_EQ(words(stream_named(model, "conv_state")), "constant all snapshot head");
  EXPECT_EQ(words(stream_named(model, "state")), "constant all snapshot head");
  EXPECT_EQ(stream_named(model, "state").purpose, Purpose::kState);
  EXPECT_EQ(slope_of(model), 0);
  // 16 ranks: 4 of 64 heads each, and one of the 8 groups on every rank.
  const auto tracks = make_tracks(model, 16, 16);
  ASSERT_TRUE(tracks.has_value());
  EXPECT_EQ(tracks->front().streams.at(0).payload_bytes, (4u * 192 + 768) * 2);
  EXPECT_EQ(tracks->front().streams.at(1).payload_bytes, 4u * 64 * 128 * 4);
}

TEST(SharedLayers, DivideTheCacheOfClaByItsGroup) {
  EXPECT_EQ(slope_of(model_of(cla_layers(kDense, 32, 2))), 16 * 4096);
  EXPECT_EQ(slope_of(model_of(cla_layers(kDense, 30, 3))), 10 * 4096);
  EXPECT_EQ(cla_layers(kDense, 30, 3).at(5).streams.front().owner_layer, 3u);
}

TEST(SharedLayers, KeepOneGlobalCacheInYoco) {
  DenseShape dense = kDense;
  dense.window = 1024;
  const ModelSpec model = model_of(yoco_layers(dense, 32));
  EXPECT_EQ(slope_of(model), 4096);
  EXPECT_EQ(fixed_of(model), 16u * 1024 * 4096);
}

}  // namespace
}  // namespace kvarto
