// What real engines printed, digit for digit: tests/golden/engine_points.jsonl, one point a line.
// `stated` points are those whose log names the model; `inferred` ones had something deduced and
// serve as consistency checks.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kvarto/model_file.h"
#include "kvarto/plan.h"

namespace kvarto {
namespace {

using Json = nlohmann::json;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::vector<Json> points() {
  std::ifstream in(std::string(KVARTO_SOURCE_DIR) + "/tests/golden/engine_points.jsonl");
  std::vector<Json> all;
  for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));
  return all;
}

PlanRequest request_of(const Json& json) {
  PlanRequest request;
  request.context = json.at("context");
  request.num_sequences = json.value("sequences", 1);
  request.types.key = json.at("key");
  request.types.value = json.at("value");
  request.types.index = json.value("index", "");
  request.tensor_parallel = json.value("tensor_parallel", 1u);
  request.block_size = json.value("block_size", 0);
  request.micro_batch = json.value("micro_batch", 0);
  request.is_swa_full = json.value("swa_full", false);
  if (json.contains("unified")) request.is_unified = json["unified"].get<bool>();
  request.has_flash_attention = json.value("flash_attention", true);
  request.draft_layers = json.value("draft_layers", 0u);
  request.draft_tokens = json.value("draft_tokens", 0u);
  request.is_prefix_caching = json.value("prefix_caching", false);
  request.kv_memory_bytes = json.value("memory_bytes", std::uint64_t{0});
  return request;
}

class EnginePoint : public testing::TestWithParam<Json> {
 protected:
  // Plans the point's request with so much memory for the cache.
  EnginePlan plan_with(double memory_bytes) const {
    const Json& point = GetParam();
    const auto model = read_config_json(point.at("config").dump(), "config.json");
    EXPECT_TRUE(model.has_value()) << (model ? "" : model.error().message);
    if (!model) return {};
    PlanRequest request = request_of(point.at("request"));
    if (memory_bytes > 0) request.kv_memory_bytes = static_cast<std::uint64_t>(memory_bytes);
    auto planned = plan(*model, request, {point.at("engine").get<std::string>()});
    EXPECT_TRUE(planned.has_value()) << (planned ? "" : planned.error().message);
    if (!planned) return {};
    std::uint64_t sum = 0;
    for (const LedgerEntry& entry : planned->engines.front().ledger) sum += entry.bytes;
    EXPECT_EQ(sum, planned->engines.front().bytes);
    return planned->engines.front();
  }
};

TEST_P(EnginePoint, PrintsTheSameDigits) {
  const EnginePlan plan = plan_with(0);
  for (const auto& [name, digits] : GetParam().at("printed").items()) {
    const auto printed = plan.printed.find(name);
    ASSERT_NE(printed, plan.printed.end()) << name;
    EXPECT_EQ(printed->second, digits.get<std::string>()) << name;
  }
}

// The engine printed its memory rounded to 0.01 GiB: the count lies between those of the two ends.
class EnginePointOfMemory : public EnginePoint {};

TEST_P(EnginePointOfMemory, CountsWithinThePrintedRoundingOfItsMemory) {
  const Json& point = GetParam();
  const double memory = point["request"]["memory_gib"].get<double>();
  const EnginePlan low = plan_with((memory - 0.005) * kGiB);
  const EnginePlan high = plan_with((memory + 0.005) * kGiB);
  if (point.contains("tokens")) {
    EXPECT_LE(low.tokens.value_or(0), point["tokens"].get<std::uint64_t>());
    EXPECT_GE(high.tokens.value_or(0), point["tokens"].get<std::uint64_t>());
  }
  if (point.contains("blocks")) {
    EXPECT_LE(low.blocks.value_or(0), point["blocks"].get<std::uint64_t>());
    EXPECT_GE(high.blocks.value_or(0), point["blocks"].get<std::uint64_t>());
  }
  if (point.contains("concurrency")) {
    const double printed = point["concurrency"].get<double>();
    EXPECT_LE(low.max_concurrency.value_or(0), printed + 0.005);
    EXPECT_GE(high.max_concurrency.value_or(0), printed - 0.005);
  }
  if (point.contains("estimated_max")) {
    EXPECT_LE(std::stoull(low.printed.at("estimated_max")),
              point["estimated_max"].get<std::uint64_t>());
    EXPECT_GE(std::stoull(high.printed.at("estimated_max")),
              point["estimated_max"].get<std::uint64_t>());
  }
}

std::string point_name(const testing::TestParamInfo<Json>& test) {
  std::string name =
      test.param.at("id").get<std::string>() + "_" + test.param.at("identity").get<std::string>();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

std::vector<Json> points_of_memory() {
  std::vector<Json> chosen;
  for (Json& point : points()) {
    if (point.at("request").contains("memory_gib")) chosen.push_back(std::move(point));
  }
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Published, EnginePoint, testing::ValuesIn(points()), point_name);
INSTANTIATE_TEST_SUITE_P(Published, EnginePointOfMemory, testing::ValuesIn(points_of_memory()),
                         point_name);

}  // namespace
}  // namespace kvarto
