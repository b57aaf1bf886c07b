#include "spec/architectures.h"

#include <gtest/gtest.h>

#include "kvarto/tracks.h"
#include "unit/cost_sums.h"

namespace kvarto {
namespace {

constexpr CacheTypes kPacked{.key = "fp8_ds_mla", .value = "fp8_ds_mla", .index = ""};
constexpr CacheTypes kAuto{.key = "auto", .value = "auto", .index = ""};

ModelSpec repeated(const LayerSpec& layer, std::size_t num_layers) {
  return model_of(std::vector<LayerSpec>(num_layers, layer));
}

const LatentShape kV3Latent{.q_heads = 128, .latent_dim = 512, .rope_dim = 64};
const IndexerShape kV32Indexer{.heads = 64, .dim = 128, .top_k = 2048};

// DeepSeek-V2 paper: (d_c + d_r) L elements with d_c = 4 d_h and d_r = d_h / 2, i.e. 34,560 for 60
// layers, as much as GQA with 2.25 groups of 2 x 128.
TEST(Mla, CachesTheElementsOfTheDeepSeekV2Paper) {
  const ModelSpec model = typed(repeated(mla_layer(kV3Latent), 60));
  EXPECT_EQ(slope_of(model), 34'560 * 2);
  EXPECT_EQ(slope_of(model) / 60 / 2 / (2 * 128), 2.25);
  EXPECT_EQ(fixed_of(model), 0u);
}

// FlashMLA FP8 blog: 576 x 2 x 62 x 131,072 = 8.72 GiB.
TEST(Mla, HasTheLatentBytesOfTheFlashMlaBlog) {
  EXPECT_EQ(slope_of(typed(repeated(mla_layer(kV3Latent), 62))) * 131'072, 9'361'686'528.0);
}

TEST(Mla, IsOneReplicatedRowThatIsReadWholeAndCutAnywhere) {
  const ModelSpec model = typed(repeated(mla_layer(kV3Latent), 1));
  EXPECT_EQ(words(stream_named(model, "latent")), "never all any replicate");
  EXPECT_EQ(model.groups.front().query.qk_dim, 576u);
  EXPECT_EQ(model.groups.front().query.v_dim, 512u);
  const auto one = make_tracks(model, 64, 1);
  const auto eight = make_tracks(model, 64, 8);
  ASSERT_TRUE(one.has_value() && eight.has_value());
  EXPECT_EQ(one->front().block_bytes, eight->front().block_bytes);
}

// ggml q8_0: 34 bytes per 32 elements; 576 / 32 x 34 = 612.
TEST(Mla, TakesEveryTypeOfItsWidth) {
  const ModelSpec model = repeated(mla_layer(kV3Latent), 1);
  const auto row = [&](const char* type) {
    return row_bytes(stream_named(typed(model, {type, type, ""}), "latent")).total();
  };
  EXPECT_EQ(row("bf16"), 1152u);
  EXPECT_EQ(row("auto"), 1152u);
  EXPECT_EQ(row("fp8"), 576u);
  EXPECT_EQ(row("q8_0"), 612u);
  EXPECT_EQ(row("fp8_ds_mla"), 656u);
}

// The rope part may be absent (GLM-5.3) and the latent narrower (Mistral-Small-4: 256 + 64).
TEST(Mla, NeverAssumes576Elements) {
  const auto row = [](std::uint32_t latent, std::uint32_t rope) {
    return row_bytes(mla_layer({64, latent, rope}).streams.front()).total();
  };
  EXPECT_EQ(row(512, 0), 1024u);
  EXPECT_EQ(row(256, 64), 640u);
}

// 61 x (656 + 132) and 61 x (1152 + 132).
TEST(Dsa, AddsIndexKeysToEveryLayer) {
  const ModelSpec model = repeated(dsa_layer(kV3Latent, kV32Indexer), 61);
  EXPECT_EQ(slope_of(typed(model, kPacked)), 48'068);
  EXPECT_EQ(slope_of(typed(model)), 78'324);
  EXPECT_EQ(slope_of(typed(model, kAuto)), 78'324);
  EXPECT_EQ(slope_of(typed(model, {"f32", "f32", ""})), 61 * (576 * 4 + 132));
  EXPECT_EQ(slope_of(typed(model, {"bf16", "bf16", "bf16"})), 61 * (1152 + 256));
  EXPECT_EQ(slope_of(typed(model, {"bf16", "bf16", "fp8"})), 78'324);
  EXPECT_EQ(slope_of(typed(model, {"bf16", "bf16", "mxfp4"})), 61 * (1152 + 68));
}

TEST(Dsa, ReadsTheLatentByTopKAndAllIndexKeys) {
  const ModelSpec model = typed(repeated(dsa_layer(kV3Latent, kV32Indexer), 1), kPacked);
  const Stream latent = stream_named(model, "latent");
  const Stream index = stream_named(model, "index_key");
  EXPECT_EQ(words(latent), "never topk(2048) any replicate");
  EXPECT_EQ(words(index), "never all any replicate");
  EXPECT_EQ(index.purpose, Purpose::kIndexer);
  EXPECT_FALSE(latent.scales_in_footer);
  EXPECT_TRUE(index.scales_in_footer);
  // 132 n + 656 min(n, 2048) against 656 n: break-even near n = 2,564.
  const auto sparse = [&](std::uint64_t n) {
    return rows_read(index, n) * 132 + rows_read(latent, n) * 656;
  };
  EXPECT_GT(sparse(2563), 2563u * 656);
  EXPECT_LT(sparse(2565), 2565u * 656);
}

TEST(Dsa, OwnsNoIndexKeysWhereItReusesASelection) {
  IndexerShape shared = kV32Indexer;
  shared.selection_layer = 2;
  const LayerSpec layer = dsa_layer(kV3Latent, shared);
  ASSERT_EQ(layer.streams.size(), 1u);
  EXPECT_EQ(layer.streams.front().selection_layer, 2u);
  EXPECT_EQ(layer.query.index_heads, 0u);
}

// 64-token index block: 8,192 bytes of values, then 256 of scales.
TEST(Dsa, PutsTheScalesOfABlockOfIndexKeysAfterItsValues) {
  const auto tracks = make_tracks(typed(repeated(dsa_layer(kV3Latent, kV32Indexer), 1)), 64);
  ASSERT_TRUE(tracks.has_value());
  const TrackStream& index = tracks->front().streams.at(1);
  EXPECT_EQ(index.payload_bytes, 8192u);
  EXPECT_EQ(index.scale_bytes, 256u);
}

CompressedShape v4_shape(std::uint64_t ratio) {
  CompressedShape shape;
  shape.q_heads = 64;
  shape.nope_dim = 448;
  shape.rope_dim = 64;
  shape.window = 128;
  shape.ratio = ratio;
  shape.has_overlap = ratio == 4;
  if (ratio == 4) shape.indexer = IndexerShape{.heads = 64, .dim = 128, .top_k = 512};
  return shape;
}

// DeepSeek-V4-Flash has 2 sliding, 21 CSA and 20 HCA layers; V4-Pro 30 CSA and 31 HCA.
ModelSpec v4_model(int num_sliding, int num_csa, int num_hca) {
  std::vector<LayerSpec> layers;
  for (int i = 0; i < num_sliding; ++i) layers.push_back(compressed_layer(v4_shape(0)));
  for (int i = 0; i < num_csa; ++i) layers.push_back(compressed_layer(v4_shape(4)));
  for (int i = 0; i < num_hca; ++i) layers.push_back(compressed_layer(v4_shape(128)));
  return model_of(layers);
}

TEST(Compressed, HasThePublishedSlopesOfDeepSeekV4Flash) {
  const ModelSpec flash = v4_model(2, 21, 20);
  EXPECT_EQ(slope_of(typed(flash, kPacked)), 3514.25);
  EXPECT_EQ(slope_of(typed(flash, kAuto)), 3514.25);
  EXPECT_EQ(slope_of(typed(flash, {"fp8_ds_mla", "fp8_ds_mla", "fp8"})), 3850.25);
  EXPECT_EQ(slope_of(typed(flash, {"auto", "auto", "fp8"})), 3850.25);
  EXPECT_EQ(slope_of(typed(flash)), 6880);
}

TEST(Compressed, HasThePublishedSlopesOfDeepSeekV4Pro) {
  const ModelSpec pro = v4_model(0, 30, 31);
  EXPECT_EQ(slope_of(typed(pro, kPacked)), 5031.4375);
  EXPECT_EQ(slope_of(typed(pro, {"fp8_ds_mla", "fp8_ds_mla", "fp8"})), 5511.4375);
  EXPECT_EQ(slope_of(typed(pro)), 9848);
  // 2.01 % of 61 layers of GQA with 8 heads of 128 in bf16.
  EXPECT_NEAR(slope_of(typed(pro, kPacked)) / (61 * 2 * 8 * 128 * 2), 0.0201, 0.00005);
}

// arXiv 2606.19348: 10 % (Pro) and 7 % (Flash) of V3.2's cache.
TEST(Compressed, HasThePublishedShareOfDeepSeekV32) {
  const double v32 = slope_of(typed(repeated(dsa_layer(kV3Latent, kV32Indexer), 61), kPacked));
  EXPECT_NEAR(slope_of(typed(v4_model(0, 30, 31), kPacked)) / v32, 0.1047, 0.00005);
  EXPECT_NEAR(slope_of(typed(v4_model(2, 21, 20), kPacked)) / v32, 0.0731, 0.00005);
  EXPECT_NEAR(v32 / slope_of(typed(v4_model(2, 21, 20), kPacked)), 13.678, 0.0005);
}

// Windows 43 x 128 x 584 and states 21 x (65,536 + 16,384) + 20 x 524,288; Pro likewise.
TEST(Compressed, HasThePublishedFixedBytes) {
  EXPECT_EQ(fixed_of(typed(v4_model(2, 21, 20), kPacked)), 3'214'336u + 12'206'080u);
  EXPECT_EQ(fixed_of(typed(v4_model(0, 30, 31), kPacked)), 4'559'872u + 18'710'528u);
}

TEST(Compressed, HasTheStatesOfItsCompressors) {
  const ModelSpec csa = typed(v4_model(0, 1, 0));
  const ModelSpec hca = typed(v4_model(0, 0, 1));
  EXPECT_EQ(row_bytes(stream_named(csa, "compressor_state")).total(), 65'536u);
  EXPECT_EQ(row_bytes(stream_named(csa, "index_compressor_state")).total(), 16'384u);
  EXPECT_EQ(row_bytes(stream_named(hca, "compressor_state")).total(), 524'288u);
  EXPECT_EQ(words(stream_named(csa, "compressor_state")), "constant none snapshot replicate");
  EXPECT_EQ(words(stream_named(hca, "compressor_state")), "constant none boundary(128) replicate");
}

TEST(Compressed, ReadsCsaByTopKAndHcaWhole) {
  const ModelSpec csa = typed(v4_model(0, 1, 0));
  const ModelSpec hca = typed(v4_model(0, 0, 1));
  EXPECT_EQ(words(stream_named(csa, "window_kv")), "window(128) window(128) resident replicate");
  EXPECT_EQ(words(stream_named(csa, "compressed_kv")), "never topk(512) any replicate");
  EXPECT_EQ(words(stream_named(csa, "index_key")), "never all any replicate");
  EXPECT_EQ(words(stream_named(hca, "compressed_kv")), "never all any replicate");
  EXPECT_EQ(stream_named(csa, "compressed_kv").born_from, "compressor_state");
  EXPECT_EQ(stream_named(csa, "index_key").tokens_per_row, 4u);
  EXPECT_EQ(stream_named(hca, "compressed_kv").tokens_per_row, 128u);
  EXPECT_EQ(csa.groups.front().architecture, "csa");
  EXPECT_EQ(hca.groups.front().architecture, "hca");
  EXPECT_EQ(v4_model(1, 0, 0).groups.front().architecture, "swa");
}

// One query at position 999 sees floor(1000 / 4) entries of CSA and floor(1000 / 128) of HCA.
TEST(Compressed, SeesWholeGroupsOnly) {
  EXPECT_EQ(rows_read(compressed_layer(v4_shape(4)).streams.at(1), 1000), 250u);
  EXPECT_EQ(rows_read(compressed_layer(v4_shape(4)).streams.at(1), 100'000), 512u);
  EXPECT_EQ(rows_read(compressed_layer(v4_shape(128)).streams.at(1), 1000), 7u);
}

// Row forms: 584 bytes packed, 512 in plain fp8, 1,024 in bf16.
TEST(Compressed, HasThePublishedRowForms) {
  const ModelSpec model = v4_model(1, 0, 0);
  const auto row = [&](const char* type) {
    return row_bytes(stream_named(typed(model, {type, type, ""}), "window_kv")).total();
  };
  EXPECT_EQ(row("fp8_ds_mla"), 584u);
  EXPECT_EQ(row("auto"), 584u);
  EXPECT_EQ(row("fp8"), 512u);
  EXPECT_EQ(row("bf16"), 1024u);
}

// vLLM issue 54703: a block of 64 window rows is ceil576(64 x 584) = 37,440 bytes.
TEST(Compressed, KnowsThe576BytesOfPackedBlocksButPadsItsOwnToCacheLines) {
  const auto tracks = make_tracks(typed(v4_model(1, 0, 0), kPacked), 64);
  ASSERT_TRUE(tracks.has_value());
  EXPECT_EQ(tracks->front().block_bytes, 64u * 584);
  EXPECT_EQ(tracks->front().streams.front().scale_bytes, 64u * 7);
  const Stream window = stream_named(typed(v4_model(1, 0, 0), kPacked), "window_kv");
  EXPECT_TRUE(window.scales_in_footer);
  EXPECT_EQ(window.block_align_bytes, 576u);
  EXPECT_EQ(stream_named(typed(v4_model(1, 0, 0)), "window_kv").block_align_bytes, 1u);
}

TEST(Compressed, FollowsAWideKeyWithItsIndexKeysButNotAnEightBitOne) {
  const ModelSpec model = v4_model(0, 1, 0);
  const auto index_row = [&](const CacheTypes& types) {
    return row_bytes(stream_named(typed(model, types), "index_key")).total();
  };
  EXPECT_EQ(index_row({"f32", "f32", ""}), 512u);
  EXPECT_EQ(index_row({"f16", "f16", ""}), 256u);
  EXPECT_EQ(index_row({"fp8", "fp8", ""}), 68u);
  EXPECT_EQ(index_row({"bf16", "bf16", "mxfp4"}), 68u);
  EXPECT_EQ(index_row({"bf16", "bf16", "auto"}), 68u);
  EXPECT_FALSE(with_types(model, {"bf16", "bf16", "fp8_ds_mla"}).has_value());
  EXPECT_FALSE(with_types(model, {"bf16", "bf16", "fp7"}).has_value());
}

CompressedShape v41_shape(std::uint64_t ratio) {
  CompressedShape shape = v4_shape(0);
  shape.ratio = ratio;
  shape.is_nvfp4_release = true;
  if (ratio != 0) shape.indexer = IndexerShape{.heads = 32, .dim = 128, .top_k = 512};
  return shape;
}

// DeepSeek-V4.1: window e4m3 in groups of 32 (512 + 16), compressed NVFP4 over 512 (256 + 32),
// index keys MXFP4 (64 + 4).
TEST(CompressedTwo, HasThePublishedRowForms) {
  const ModelSpec model = typed(model_of({compressed_layer(v41_shape(2))}), kAuto);
  EXPECT_EQ(row_bytes(stream_named(model, "window_kv")).total(), 528u);
  EXPECT_EQ(row_bytes(stream_named(model, "compressed_kv")).total(), 288u);
  EXPECT_EQ(row_bytes(stream_named(model, "index_key")).total(), 68u);
  EXPECT_EQ(slope_of(model), (288 + 68) / 2.0);
  EXPECT_EQ(model.groups.front().architecture, "csa2");
}

// Ratio 2 keeps 2 rows of 512 vectors and scores in f32; ratio 1 is a plain projection.
TEST(CompressedTwo, KeepsAStateOnlyWhereItCompresses) {
  const ModelSpec two = typed(model_of({compressed_layer(v41_shape(2))}));
  EXPECT_EQ(row_bytes(stream_named(two, "compressor_state")).total(), 2u * 512 * 2 * 4);
  EXPECT_EQ(words(stream_named(two, "compressor_state")), "constant none boundary(2) replicate");
  EXPECT_EQ(compressed_layer(v41_shape(1)).streams.size(), 3u);
  EXPECT_EQ(compressed_layer(v41_shape(1)).streams.at(1).born_from, "");
}

TEST(CompressedTwo, OwnsNothingButItsWindowWhereItReuses) {
  CompressedShape reindex = v41_shape(1);
  reindex.kv_owner_layer = 20;
  reindex.indexer->candidate_rows = 2048 * 8;
  const LayerSpec layer = compressed_layer(reindex);
  ASSERT_EQ(layer.streams.size(), 3u);
  EXPECT_EQ(layer.streams[1].owner_layer, 20u);
  EXPECT_EQ(layer.streams[2].owner_layer, 20u);
  EXPECT_EQ(to_string(layer.streams[2].access), "blocks(16384)");
  CompressedShape reuse = v41_shape(1);
  reuse.kv_owner_layer = 20;
  reuse.selection_layer = 24;
  const LayerSpec consumer = compressed_layer(reuse);
  ASSERT_EQ(consumer.streams.size(), 2u);
  EXPECT_EQ(consumer.streams[1].selection_layer, 24u);
  EXPECT_EQ(slope_of(model_of({layer, consumer})), 0);
}

}  // namespace
}  // namespace kvarto
