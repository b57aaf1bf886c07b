// What a measurement of sparse attention plans is what it reads, at any length.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <random>

#include "kvarto/measure_sparse.h"
#include "kvarto/plan.h"
#include "kvarto/profile.h"
#include "spec/architectures.h"

namespace kvarto {
namespace {

using rc::gen::inRange;

constexpr LatentShape kRow{
    .q_heads = 4, .latent_dim = 32, .rope_dim = 16, .nope_dim = 16, .v_dim = 16};

RC_GTEST_PROP(SparseMeasureProperty, PlannedReadsAreThoseThatHappen, ()) {
  SparseBench bench;
  const LayerSpec layer =
      dsa_layer(kRow, {.heads = 2, .dim = 128, .top_k = *inRange<std::uint64_t>(1, 60)});
  bench.model.num_layers = 1;
  bench.model.groups = group_layers({layer});
  const std::string index = *rc::gen::element<std::string>("", "f16", "int8");
  bench.model = *with_types(bench.model, {"f16", "f16", index});
  bench.kv_len = *inRange<std::uint64_t>(1, 150);
  bench.q_len = *inRange<std::uint64_t>(1, bench.kv_len + 1);
  bench.batch = *inRange(1u, 3u);
  bench.block_size = *rc::gen::element<std::uint64_t>(0, 1, 16, 24);
  bench.seconds = 1e-4;
  const auto report = measure_sparse(bench);
  RC_ASSERT(report.has_value());
  for (const auto& [planned, measured] : {std::pair(report->planned_index, report->index_reads),
                                          std::pair(report->planned, report->reads)}) {
    RC_ASSERT(planned.rows == measured.rows);
    RC_ASSERT(planned.bytes == measured.bytes);
    RC_ASSERT(planned.rows_read == measured.rows_read);
    RC_ASSERT(planned.bytes_read == measured.bytes_read);
  }
  RC_ASSERT(report->unique_kv_bytes <= report->planned_bytes());
  // One query token reads every byte once.
  if (bench.q_len == 1) RC_ASSERT(report->unique_kv_bytes == report->planned_bytes());
}

// A few cases alone: every run times the machine beside the cache.
TEST(SparseMeasureProperty, LayersThatShareASelectionReadAsPlanned) {
  std::mt19937 random(20261130);
  const auto any = [&](std::uint64_t least, std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(least, most)(random);
  };
  for (int i = 0; i < 6; ++i) {
    const IndexerShape indexer{.heads = 2, .dim = 128, .top_k = any(1, 60)};
    IndexerShape sharing = indexer;
    sharing.selection_layer = 0;
    const std::string type = std::array<std::string, 3>{"f32", "f16", "int8"}[any(0, 2)];
    ProfileRequest request;
    request.types = {type, type, ""};
    request.model.num_layers = 3;
    request.model.groups = group_layers(
        {dsa_layer(kRow, indexer), dsa_layer(kRow, sharing), dsa_layer(kRow, sharing)});
    request.model = *with_types(request.model, request.types);
    request.context = any(2, 150);
    request.num_sequences = any(1, 2);
    request.block_size = any(1, 2) * 8 + 8;
    request.has_all_layers = any(0, 1) == 1;
    SCOPED_TRACE(fmt::format("{} of {} tokens in {}, blocks of {}", indexer.top_k, request.context,
                             type, request.block_size));
    const auto runs = profile(request);
    ASSERT_TRUE(runs.has_value()) << runs.error().message;
    ASSERT_EQ(runs->size(), 2u);
    for (const ProfileRun& run : *runs) {
      for (const StreamAccess& stream : run.access.streams) {
        EXPECT_EQ(stream.predicted_bytes, stream.measured_bytes);
      }
      EXPECT_EQ(run.access.steps_that_differ, 0u);
      EXPECT_EQ(run.size.predicted_allocated_bytes, run.size.allocated_bytes);
      for (const Verified& statement : run.verified) {
        EXPECT_TRUE(statement.is_met) << statement.statement << ": " << statement.detail;
      }
    }
  }
}

}  // namespace
}  // namespace kvarto
