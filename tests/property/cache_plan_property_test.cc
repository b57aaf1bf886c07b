// The promise that plan and measurement agree: what the cache allocates, bookkeeping included, is
// what the planner's engine `kvarto` says.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kvarto/kv_cache.h"
#include "kvarto/plan.h"
#include "plan_models.h"

namespace kvarto {
namespace {

using rc::gen::inRange;

std::uint64_t planned_bytes(const ModelSpec& model, const PlanRequest& request) {
  const auto plan = kvarto::plan(model, request, {"kvarto"});
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? plan->engines[0].bytes : 0;
}

CacheOptions options_of(const PlanRequest& request) {
  CacheOptions options;
  options.context = request.context;
  options.num_sequences = request.num_sequences;
  options.tensor_parallel = request.tensor_parallel;
  if (request.block_size != 0) options.block_size = request.block_size;
  if (request.micro_batch != 0) options.micro_batch = request.micro_batch;
  options.keeps_squares = request.keeps_squares;
  return options;
}

Field any_field(int index) {
  Field field;
  field.name = "f" + std::to_string(index);
  field.heads = *inRange(1u, 6u);
  field.width = 32 * *inRange(1u, 5u);
  field.role =
      *rc::gen::element(CodecRole::kKey, CodecRole::kValue, CodecRole::kIndex, CodecRole::kFixed);
  field.native = *rc::gen::element(Codec::kBF16, Codec::kF32, Codec::kFp8Scaled128, Codec::kBit);
  return field;
}

Stream any_stream() {
  using Kind = Lifetime::Kind;
  Stream stream;
  stream.name = *rc::gen::element<std::string>("k", "v", "latent");
  const int num_fields = *inRange(1, 3);
  for (int i = 0; i < num_fields; ++i) stream.fields.push_back(any_field(i));
  const Kind kind = *rc::gen::element(Kind::kNever, Kind::kWindow, Kind::kChunk, Kind::kTtl,
                                      Kind::kKept, Kind::kStep, Kind::kConstant);
  const bool has_tokens = kind != Kind::kNever && kind != Kind::kStep && kind != Kind::kConstant;
  stream.lifetime = {kind, has_tokens ? *inRange<std::uint64_t>(1, 200) : 0};
  if (kind != Kind::kChunk && kind != Kind::kConstant) {
    stream.tokens_per_row = *rc::gen::element<std::uint64_t>(1, 1, 4, 128);
    stream.birth_delay_tokens = *rc::gen::element<std::uint64_t>(0, 0, 60);
  }
  stream.shard = *rc::gen::element(Shard::kHead, Shard::kReplicate);
  stream.purpose = *rc::gen::element(Purpose::kAttention, Purpose::kIndexer, Purpose::kState);
  return stream;
}

ModelSpec any_model() {
  ModelSpec model;
  const int num_groups = *inRange(1, 4);
  for (int g = 0; g < num_groups; ++g) {
    LayerGroup group;
    group.architecture = "a";
    const std::uint32_t num_layers = *inRange(1u, 5u);
    for (std::uint32_t i = 0; i < num_layers; ++i) group.layers.push_back(model.num_layers++);
    const int num_streams = *inRange(0, 4);
    for (int s = 0; s < num_streams; ++s) {
      group.streams.push_back(any_stream());
      group.streams.back().name += std::to_string(s);
    }
    model.groups.push_back(group);
  }
  return model;
}

RC_GTEST_PROP(CachePlanProperty, TheCacheAllocatesTheBytesThatThePlanSays, ()) {
  PlanRequest request;
  request.context = *inRange<std::uint64_t>(1, 600);
  request.num_sequences = *inRange<std::uint64_t>(1, 4);
  request.keeps_squares = *rc::gen::arbitrary<bool>();
  request.types = {*rc::gen::element<std::string>("auto", "bf16", "q8_0", "int4", "fp8"),
                   *rc::gen::element<std::string>("bf16", "q4_0", "f32"), ""};
  request.tensor_parallel = *inRange(1u, 5u);
  request.block_size = *rc::gen::element<std::uint64_t>(0, 1, 16, 100);
  request.micro_batch = *rc::gen::element<std::uint64_t>(0, 1, 64, 1'000'000);
  const ModelSpec model = any_model();
  const auto cache = KvCache::create(*with_types(model, request.types), options_of(request));
  if (!cache) RC_FAIL(cache.error().message);
  RC_ASSERT(cache->allocated_bytes() == planned_bytes(model, request));
}

struct NamedLayer {
  const char* name;
  LayerSpec layer;
};

std::vector<NamedLayer> all_architectures() {
  const DenseShape gqa{.q_heads = 8, .kv_heads = 2, .qk_dim = 64, .v_dim = 64};
  DenseShape windowed = gqa;
  windowed.window = 128;
  DenseShape chunked = gqa;
  chunked.chunk = 256;
  const LatentShape latent{.q_heads = 8, .latent_dim = 512, .rope_dim = 64};
  const IndexerShape indexer{.heads = 4, .dim = 128, .top_k = 64};
  CompressedShape csa{.q_heads = 8, .nope_dim = 448, .rope_dim = 64, .window = 128, .ratio = 4};
  csa.has_overlap = true;
  csa.indexer = indexer;
  const CompressedShape hca{
      .q_heads = 8, .nope_dim = 448, .rope_dim = 64, .window = 128, .ratio = 128};
  StateShape gdn;
  gdn.architecture = "gdn";
  gdn.conv = {{"conv", 1, 300}};
  gdn.state = {{"state", 4, 1024}};
  using Summary = BlockSparseShape::Summary;
  return {
      {"gqa", dense_layer(gqa)},
      {"swa", dense_layer(windowed)},
      {"chunked", dense_layer(chunked)},
      {"mla", mla_layer(latent)},
      {"dsa", dsa_layer(latent, indexer)},
      {"csa", compressed_layer(csa)},
      {"hca", compressed_layer(hca)},
      {"multilevel", multilevel_layer({.dense = windowed, .group = 16, .ttl = 512})},
      {"dynamic", dynamic_layer({.dense = gqa})},
      {"quest", block_sparse_layer({.dense = gqa, .summary = Summary::kMinMax, .budget = 64})},
      {"moba", block_sparse_layer({.dense = gqa, .summary = Summary::kMean, .budget = 64})},
      {"nsa", block_sparse_layer({.dense = gqa, .summary = Summary::kNsa, .budget = 64})},
      {"eviction", eviction_layer(gqa, 200)},
      {"tail_quantised", tail_quantised_layer({.dense = gqa})},
      {"gdn", state_layer(gdn)},
  };
}

class EveryArchitecture : public ::testing::TestWithParam<NamedLayer> {};

TEST_P(EveryArchitecture, AllocatesAndGrowsAndAccountsAsPlanned) {
  const ModelSpec model = test::uniform_model(GetParam().layer, 3);
  for (const char* type : {"bf16", "auto"}) {
    PlanRequest request;
    request.context = 1000;
    request.num_sequences = 2;
    request.micro_batch = 32;
    request.types = {type, type, ""};
    auto cache = KvCache::create(*with_types(model, request.types), options_of(request));
    ASSERT_TRUE(cache) << cache.error().message;
    EXPECT_EQ(cache->allocated_bytes(), planned_bytes(model, request)) << type;
    const SequenceId sequence = *cache->create_sequence();
    const bool is_kept = std::string(GetParam().name) == "eviction";
    for (std::uint64_t tokens = 0; tokens < 1000; tokens += 25) {
      if (is_kept && tokens >= 175) break;
      const auto grant = cache->append(sequence, 25);
      ASSERT_TRUE(grant) << grant.error().message;
      ASSERT_EQ(*grant, Grant::kDone);
    }
    ASSERT_TRUE(cache->trim(sequence));
    const auto blocks = *cache->num_blocks(sequence);
    for (std::size_t t = 0; t < blocks.size(); ++t) {
      EXPECT_EQ(blocks[t], resident_blocks(cache->tracks()[t], *cache->num_tokens(sequence)));
    }
    EXPECT_TRUE(cache->verify());
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryArchitecture, ::testing::ValuesIn(all_architectures()),
                         [](const ::testing::TestParamInfo<NamedLayer>& param) {
                           return std::string(param.param.name);
                         });

}  // namespace
}  // namespace kvarto
