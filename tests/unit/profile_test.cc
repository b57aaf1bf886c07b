// What a profile reports: sizes and reads against figures worked out by hand, lifetimes, latencies.

#include "kvarto/profile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cache_models.h"
#include "kvarto/plan.h"
#include "profile/read_map.h"
#include "spec/architectures.h"

namespace kvarto {
namespace {

constexpr std::uint32_t kQueryHeads = 8;
constexpr std::uint32_t kHeadDim = 32;

struct Case {
  const char* word;
  std::uint32_t kv_heads;
  std::uint64_t window;  // 0 = off
  std::uint64_t chunk;   // 0 = off
};

constexpr Case kCases[] = {
    {"mha", 8, 0, 0},     {"gqa:2", 2, 0, 0},  {"mqa", 1, 0, 0},
    {"swa:40", 2, 40, 0}, {"gqa:2", 2, 0, 64},
};

ModelSpec model_for(const Case& each, const std::string& type, std::uint32_t layers) {
  WhatIfDefaults defaults;
  defaults.q_heads = kQueryHeads;
  defaults.kv_heads = each.kv_heads;
  defaults.head_dim = kHeadDim;
  ModelSpec model = *geometry_model(each.word, defaults, layers);
  if (each.chunk != 0) {
    for (Stream& stream : model.groups.front().streams) {
      stream.lifetime = {Lifetime::Kind::kChunk, each.chunk};
      stream.truncate = {Truncate::Kind::kResident, 0};
    }
  }
  return *with_types(model, {type, type, ""});
}

ProfileRequest request_for(const Case& each, const std::string& type, std::uint64_t context) {
  ProfileRequest request;
  request.types = {type, type, ""};
  request.model = model_for(each, type, 1);
  request.context = context;
  request.num_sequences = 2;
  request.micro_batch = 100;
  return request;
}

std::uint64_t visible_rows(const Case& each, std::uint64_t tokens) {
  if (each.window != 0) return std::min(tokens, each.window);
  return each.chunk != 0 ? (tokens - 1) % each.chunk + 1 : tokens;
}

void expect_equal_figures(const Case& each, const std::string& type, std::uint64_t context) {
  SCOPED_TRACE(std::string(each.word) + " " + type + " at " + std::to_string(context));
  const auto runs = profile(request_for(each, type, context));
  ASSERT_TRUE(runs) << runs.error().message;
  ASSERT_EQ(runs->size(), 1u);
  const ProfileRun& run = runs->front();
  const std::uint64_t row = std::uint64_t{each.kv_heads} * kHeadDim * 2;  // two bytes an element
  const std::uint64_t bytes = 2 * visible_rows(each, context) * row;      // two sequences
  ASSERT_EQ(run.size.streams.size(), 2u);
  for (const StreamSize& stream : run.size.streams) {
    EXPECT_EQ(stream.predicted_bytes, bytes);
    EXPECT_EQ(stream.measured_bytes, bytes);
    EXPECT_EQ(stream.predicted_held_bytes, stream.held_bytes);
  }
  EXPECT_EQ(run.size.predicted_allocated_bytes, run.size.allocated_bytes);
  EXPECT_EQ(run.size.predicted_metadata_bytes, run.size.metadata_bytes);
  ASSERT_EQ(run.access.streams.size(), 2u);
  for (const StreamAccess& stream : run.access.streams) {
    EXPECT_EQ(stream.predicted_bytes, bytes);
    EXPECT_EQ(stream.measured_bytes, bytes);
  }
  EXPECT_EQ(run.access.predicted_step_bytes, 2 * bytes);
  EXPECT_EQ(run.access.measured_rows, 2 * visible_rows(each, context));
  EXPECT_EQ(run.access.steps_that_differ, 0u);
  EXPECT_EQ(run.steps.size(), default_steps(context));
  for (const Verified& statement : run.verified) {
    EXPECT_TRUE(statement.is_met) << statement.statement << ": " << statement.detail;
  }
  EXPECT_EQ(run.verified.size(), 6u);
}

TEST(Profile, PlannedAndMeasuredBytesAreEqualInBothSixteenBitTypes) {
  for (const Case& each : kCases) {
    for (const char* type : {"f16", "bf16"}) {
      for (const std::uint64_t context : {37, 256, 1000}) expect_equal_figures(each, type, context);
    }
  }
}

TEST(Profile, HoldsForGenericLayoutThreadsAndBlocksThatAreNotWholeTiles) {
  for (const std::uint64_t block_size : {16, 24}) {
    ProfileRequest request = request_for(kCases[3], "f32", 203);
    request.layout = Layout::kGeneric;
    request.num_threads = 2;
    request.block_size = block_size;
    request.num_steps = 30;
    const auto runs = profile(request);
    ASSERT_TRUE(runs) << runs.error().message;
    EXPECT_TRUE(runs->front().is_all_met());
    EXPECT_EQ(runs->front().layout.streams.front().axes, "[row][head][element]");
    EXPECT_EQ(runs->front().steps.size(), 30u);
  }
}

TEST(Profile, RunsInF16AndPlansTheSquaresThatItNeeds) {
  ProfileRequest request = request_for({"gqa:2", 2, 0, 0}, "f16", 200);
  request.arith = Arith::kF16;
  const auto runs = profile(request);
  if (!runs.has_value()) {
    // Machines and compilers without the unit say so instead.
    EXPECT_EQ(runs.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(runs.error().message.find("f16 needs"), std::string::npos) << runs.error().message;
    GTEST_SKIP() << runs.error().message;
  }
  EXPECT_EQ(runs->front().arith, "f16");
  EXPECT_TRUE(runs->front().is_all_met());
  // Of K and of V: 2 heads x 32 elements x a mean and a peak of 4 bytes.
  request.arith = Arith::kF32;
  const auto without = profile(request);
  ASSERT_TRUE(without.has_value());
  EXPECT_EQ(runs->front().size.metadata_bytes,
            without->front().size.metadata_bytes + 2 * (2 * 32 * 2 * 4));
}

TEST(Profile, CountsEveryBlockOfAWindowFromBirthToDeath) {
  ProfileRequest request = request_for(kCases[3], "f16", 320);
  request.num_steps = 160;
  request.num_sequences = 1;
  const auto runs = profile(request);
  ASSERT_TRUE(runs) << runs.error().message;
  const TrackLife& life = runs->front().lifetime.front();
  // 320 tokens in blocks of 16. The last 40 rows begin in row 280, that is in block 17 of 0 to 19.
  EXPECT_EQ(life.births, 20u);
  EXPECT_EQ(life.deaths, 17u);
  EXPECT_EQ(life.resident, 3u);
  ASSERT_EQ(life.timeline.size(), 161u);
  EXPECT_EQ(life.timeline.back(), 3u);
  // The blocks of rows below 121 are gone before the first step, whose token 161 sees 121 to 160;
  // block 7 has rows 112 to 127.
  EXPECT_EQ(life.never_read, 7u);
  // A block is read in every step from its first to its last.
  ASSERT_EQ(life.reuse_gaps.size(), 1u);
  EXPECT_EQ(life.reuse_gaps.begin()->first, 1u);
}

TEST(Profile, AllLayersReadAsManyTimesTheBytes) {
  ProfileRequest request = request_for(kCases[1], "bf16", 64);
  request.model = model_for(kCases[1], "bf16", 3);
  const auto one = profile(request);
  request.has_all_layers = true;
  const auto all = profile(request);
  ASSERT_TRUE(one && all);
  EXPECT_EQ(one->front().layers.size(), 1u);
  EXPECT_EQ(all->front().layers.size(), 3u);
  EXPECT_EQ(all->front().access.streams.front().measured_bytes,
            3 * one->front().access.streams.front().measured_bytes);
  EXPECT_TRUE(all->front().is_all_met());
}

TEST(Profile, RefusesWhatCannotRunAndSaysWhy) {
  ProfileRequest request = request_for(kCases[0], "f16", 64);
  request.num_steps = 65;
  EXPECT_EQ(profile(request).error().code, ErrorCode::kInvalidArgument);
  request.num_steps = 0;
  request.context = std::uint64_t{1} << 44;
  const auto huge = profile(request);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(huge.error().message.find("are available"), std::string::npos);

  const ModelSpec compressed = *geometry_model("hca", {}, 1);
  EXPECT_EQ(check_runnable(compressed, compressed.groups.front()).error().code,
            ErrorCode::kUnsupported);
  ModelSpec counted = model_for(kCases[0], "q8_KV", 1);
  const Status refused = check_runnable(counted, counted.groups.front());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("q8_KV"), std::string::npos);
}

// Layer 0 has an indexer; layers 1, 2 and 4 reuse its selection, layer 3 has one of its own that
// layer 5 reuses.
ModelSpec sharing_model() {
  const LatentShape shape{
      .q_heads = 4, .latent_dim = 64, .rope_dim = 16, .nope_dim = 32, .v_dim = 32};
  IndexerShape own{.heads = 4, .dim = 128, .top_k = 24};
  IndexerShape of_first = own;
  of_first.selection_layer = 0;
  IndexerShape of_fourth = own;
  of_fourth.selection_layer = 3;
  ModelSpec model;
  model.num_layers = 6;
  model.groups = group_layers({dsa_layer(shape, own), dsa_layer(shape, of_first),
                               dsa_layer(shape, of_first), dsa_layer(shape, own),
                               dsa_layer(shape, of_first), dsa_layer(shape, of_fourth)});
  return *with_types(model, {"f16", "f16", ""});
}

const PhaseTime* phase_named(const ProfileRun& run, const std::string& name) {
  for (const PhaseTime& phase : run.latency.phases) {
    if (phase.name == name) return &phase;
  }
  return nullptr;
}

// 200 tokens x 80 elements x 2 bytes; 24 rows of them are read; 200 keys of 128 + 4 bytes.
TEST(Profile, LayersThatReuseASelectionReadItsRowsAndNoKeys) {
  ProfileRequest request;
  request.types = {"f16", "f16", ""};
  request.model = sharing_model();
  request.context = 200;
  request.num_steps = 20;
  const auto runs = profile(request);
  ASSERT_TRUE(runs) << runs.error().message;
  ASSERT_EQ(runs->size(), 2u);
  const ProfileRun& own = runs->front();
  EXPECT_EQ(own.group_layers, 2u);
  EXPECT_FALSE(own.selection_layer.has_value());
  ASSERT_EQ(own.access.streams.size(), 2u);
  EXPECT_EQ(own.access.streams[1].measured_bytes, 200u * 132);
  ASSERT_NE(phase_named(own, "index"), nullptr);
  EXPECT_GT(phase_named(own, "index")->share, 0);

  const ProfileRun& sharing = runs->back();
  EXPECT_EQ(sharing.group_layers, 4u) << "layers 1, 2, 4 and 5";
  EXPECT_EQ(sharing.layers, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(sharing.selection_layer, std::optional<std::uint32_t>(0));
  ASSERT_EQ(sharing.size.streams.size(), 1u);
  EXPECT_EQ(sharing.size.streams[0].predicted_bytes, 200u * 160);
  EXPECT_EQ(sharing.size.streams[0].measured_bytes, 200u * 160);
  ASSERT_EQ(sharing.access.streams.size(), 1u);
  EXPECT_EQ(sharing.access.streams[0].predicted_bytes, 24u * 160);
  EXPECT_EQ(sharing.access.streams[0].measured_bytes, 24u * 160);
  EXPECT_EQ(sharing.access.predicted_step_bytes, 24u * 160);
  EXPECT_EQ(sharing.access.steps_that_differ, 0u);
  // The cache holds the rows and keys of the layer that selects, too: 94,016 bytes in whole pages.
  static_assert(13 * 16 * (2 * 160 + 132) == 94'016);
  EXPECT_EQ(sharing.size.allocated_bytes - sharing.size.metadata_bytes, 23u * 4096);
  EXPECT_EQ(phase_named(sharing, "index"), nullptr);
  for (const ProfileRun& run : *runs) {
    for (const Verified& statement : run.verified) {
      EXPECT_TRUE(statement.is_met) << statement.statement << ": " << statement.detail;
    }
  }
}

TEST(Profile, AllLayersOfASharedSelectionReadTheSameRows) {
  ProfileRequest request;
  request.types = {"f16", "f16", ""};
  request.model = sharing_model();
  request.context = 100;
  request.num_sequences = 2;
  request.has_all_layers = true;
  const auto runs = profile(request);
  ASSERT_TRUE(runs) << runs.error().message;
  ASSERT_EQ(runs->size(), 3u);
  EXPECT_EQ((*runs)[1].layers, (std::vector<std::uint32_t>{1, 2, 4}));
  EXPECT_EQ((*runs)[1].access.streams[0].measured_bytes, 3u * 2 * 24 * 160);
  EXPECT_EQ((*runs)[2].layers, (std::vector<std::uint32_t>{5}));
  EXPECT_EQ((*runs)[2].selection_layer, std::optional<std::uint32_t>(3));
  for (const ProfileRun& run : *runs) EXPECT_TRUE(run.is_all_met());
}

TEST(Profile, RefusesASelectionThatNoIndexerMakes) {
  ModelSpec model = sharing_model();
  for (LayerGroup& group : model.groups) {
    if (group.streams.size() == 1) group.streams.front().selection_layer = 1;
  }
  const Status refused = check_runnable(model, model.groups[1]);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("selection of layer 1"), std::string::npos);
  // Keys of pools of tokens are planned, not run.
  ModelSpec pooled = sharing_model();
  pooled.groups[0].streams[1].tokens_per_row = 4;
  const Status of_pools = check_runnable(pooled, pooled.groups[0]);
  ASSERT_FALSE(of_pools);
  EXPECT_NE(of_pools.error().message.find("\"index_key\" has one row for 4 tokens"),
            std::string::npos);
}

TEST(Profile, TypesByLayerArePlannedAsTheyRun) {
  // 2 heads x 32 elements: 128 bytes in f16; q8_0 34 bytes for 32 elements, q4_0 18.
  ProfileRequest request = request_for(kCases[1], "f16", 64);
  request.model = model_for(kCases[1], "f16", 3);
  request.layer_types = {{{1}, {"q8_0", "q4_0", ""}}};
  request.model = *with_types(request.model, request.types, request.layer_types);
  request.num_sequences = 1;
  const auto runs = profile(request);
  ASSERT_TRUE(runs) << runs.error().message;
  ASSERT_EQ(runs->size(), 2u);
  EXPECT_EQ(runs->front().type, "f16");
  EXPECT_EQ(runs->front().group_layers, 2u);
  EXPECT_EQ(runs->back().type, "q8_0/q4_0");
  EXPECT_EQ(runs->back().layers, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(runs->back().access.streams[0].measured_bytes, 64u * 2 * 34);
  EXPECT_EQ(runs->back().access.streams[1].measured_bytes, 64u * 2 * 18);
  for (const ProfileRun& run : *runs) EXPECT_TRUE(run.is_all_met());
}

TEST(Profile, StopsEarlyAsAPartialReport) {
  const std::atomic<bool> is_stopping{true};
  ProfileRequest request = request_for(kCases[0], "f16", 500);
  request.is_stopping = &is_stopping;
  const auto runs = profile(request);
  ASSERT_TRUE(runs) << runs.error().message;
  EXPECT_TRUE(runs->front().is_partial);
  EXPECT_EQ(runs->front().steps.size(), 1u);
  EXPECT_EQ(runs->front().context, 101u);  // one chunk of the prefill and one step
  EXPECT_TRUE(runs->front().is_all_met());
}

TEST(Latency, PercentilesAreMeasuredValues) {
  std::vector<double> seconds;
  for (int i = 100; i >= 1; --i) seconds.push_back(i * 1e-6);
  const LatencySummary summary = summarise_latency(seconds);
  EXPECT_EQ(summary.steps, 100u);
  EXPECT_NEAR(summary.min_us, 1, 1e-9);
  EXPECT_NEAR(summary.median_us, 50, 1e-9);
  EXPECT_NEAR(summary.p90_us, 90, 1e-9);
  EXPECT_NEAR(summary.p99_us, 99, 1e-9);
  EXPECT_NEAR(summary.max_us, 100, 1e-9);
  // Of 1 to n: n (n + 1) / 12 is the sample's variance.
  EXPECT_NEAR(summary.stddev_us, std::sqrt(100.0 * 101 / 12), 1e-6);
  EXPECT_LT(summary.stddev_low_us, summary.stddev_us);
  EXPECT_GT(summary.stddev_high_us, summary.stddev_us);
  EXPECT_EQ(summarise_latency({}).steps, 0u);
}

// Two blocks of 16 rows, 2 heads x 32 elements of f16, in which rows 4 to 19 are read.
StreamReads reads_of(StreamLayout layout, std::span<const SequenceView> sequences,
                     std::span<const ReadRun> runs) {
  StreamReads reads;
  reads.stream = {
      .block_stride_bytes = 2048, .layout = layout, .codec = Codec::kF16, .heads = 2, .width = 32};
  reads.rows_per_block = 16;
  reads.sequences = sequences;
  reads.runs = runs;
  return reads;
}

constexpr StreamLayout kRows{RowOrder::kRowHead, 64, 128};
constexpr StreamLayout kHeads{RowOrder::kHeadRow, 1024, 64};
constexpr StreamLayout kTiles{RowOrder::kHeadTiles, 1024, 1024};

TEST(ReadMap, CountsLinesAndUnbrokenRuns) {
  const std::vector<std::uint32_t> table = {0, 1};
  const std::vector<SequenceView> sequences = {{table, 0, 32}};
  const std::vector<ReadRun> runs = {{0, 4, 12}, {0, 16, 4}};
  StreamLayoutReport report;
  describe_reads(reads_of(kRows, sequences, runs), report);
  EXPECT_EQ(report.line_utilisation, 1.0);
  EXPECT_EQ(report.run_rows, (std::map<std::uint64_t, std::uint64_t>{{16, 1}}));

  report = {};
  describe_reads(reads_of(kHeads, sequences, runs), report);
  EXPECT_EQ(report.line_utilisation, 1.0);
  // One head's rows end in the middle of the block: the other head's lie between.
  EXPECT_EQ(report.run_rows, (std::map<std::uint64_t, std::uint64_t>{{12, 1}, {4, 1}}));
  EXPECT_EQ(report.jumps, (std::map<std::int64_t, std::uint64_t>{{1024, 1}}));

  report = {};
  describe_reads(reads_of(kTiles, sequences, runs), report);
  // 16 rows are used of the 32 whose tiles are touched.
  EXPECT_EQ(report.line_utilisation, 0.5);
}

TEST(ReadMap, PoisonsEveryRowButThoseRead) {
  const std::vector<std::uint32_t> table = {2, 0};
  const std::vector<SequenceView> sequences = {{table, 0, 32}};
  const std::vector<ReadRun> runs = {{0, 4, 16}};
  for (const StreamLayout& layout : {kRows, kHeads, kTiles}) {
    std::vector<std::byte> storage(3 * 2048);
    EXPECT_EQ(poison_unread(reads_of(layout, sequences, runs), storage.data(), 3), 32u);
    // 16 rows of 128 bytes are left.
    EXPECT_EQ(std::count(storage.begin(), storage.end(), std::byte{0}), 16 * 128);
    // Row 4 of block 2, the first that is read, and row 3 before it; head 1, element 5.
    const std::uint64_t stride = layout.order == RowOrder::kHeadTiles ? 2 : 0;
    const auto place = [&](std::uint64_t row) {
      const std::uint64_t inside =
          stride != 0 ? row * 2 + 5 * 16 * 2 : row * layout.row_stride_bytes + 5 * 2;
      return 2 * 2048 + layout.head_stride_bytes + inside;
    };
    EXPECT_EQ(storage[place(4)], std::byte{0});
    EXPECT_EQ(storage[place(3)], std::byte{0xFF});
    EXPECT_EQ(storage[2048], std::byte{0xFF});
  }
}

TEST(Recorder, TellsIdleBlocksFromReadOnes) {
  CacheOptions options;
  options.context = 64;
  options.num_sequences = 2;
  auto cache = KvCache::create(dense_model(1, 16, Codec::kF16), options);
  ASSERT_TRUE(cache);
  CacheRecorder recorder(*cache);
  cache->set_observer(&recorder);
  const SequenceId read = *cache->create_sequence();
  const SequenceId idle = *cache->create_sequence();
  ASSERT_TRUE(cache->append(read, 16));
  ASSERT_TRUE(cache->append(idle, 32));
  EXPECT_EQ(recorder.next_step().blocks_taken, 3u);
  const auto k = *cache->find_stream(0, "k");
  const auto view = cache->view(k, *cache->find_stream(0, "v"), std::vector{read});
  ASSERT_TRUE(view);
  const std::vector<ReadRun> runs = {{0, 0, 16}};
  for (int step = 1; step <= 5; ++step) {
    if (step != 3) recorder.decoded(view->cache(), {.runs = runs});
    const StepCounts counts = recorder.next_step();
    EXPECT_EQ(counts.rows_read, step == 3 ? 0u : 16u);
    EXPECT_EQ(counts.k_bytes, step == 3 ? 0u : 16u * 16 * 2);
  }
  ASSERT_TRUE(cache->free_sequence(idle));
  const TrackLife life = recorder.lifetimes().front();
  EXPECT_EQ(life.births, 3u);
  EXPECT_EQ(life.deaths, 2u);
  EXPECT_EQ(life.resident, 1u);
  EXPECT_EQ(life.never_read, 2u);
  EXPECT_EQ(life.max_idle, 6u);
  EXPECT_EQ(life.reuse_gaps, (std::map<std::uint64_t, std::uint64_t>{{1, 2}, {2, 1}}));
  EXPECT_EQ(life.timeline, (std::vector<std::uint64_t>{3, 3, 3, 3, 3, 3}));
  cache->set_observer(nullptr);
  ASSERT_TRUE(cache->free_sequence(read));
  EXPECT_EQ(recorder.lifetimes().front().deaths, 2u);
}

}  // namespace
}  // namespace kvarto
