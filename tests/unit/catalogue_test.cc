#include "kvarto/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kvarto/model_file.h"

namespace kvarto {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json file_of_the_tree(const std::string& path) {
  std::ifstream file(std::string(KVARTO_SOURCE_DIR) + "/" + path);
  return nlohmann::json::parse(file);
}

TEST(CatalogueModels, AreThoseOfTheFileInTheOrderOfTheirNames) {
  const nlohmann::json file = file_of_the_tree("catalogue/models.json");
  const auto models = catalogue_models();
  ASSERT_EQ(models.size(), file.size());
  for (std::size_t i = 0; i < models.size(); ++i) {
    SCOPED_TRACE(models[i].name);
    EXPECT_EQ(models[i].name, file[i].at("name"));
    EXPECT_EQ(models[i].source, file[i].at("source"));
    EXPECT_EQ(models[i].model_type, file[i].at("config").at("model_type"));
    EXPECT_FALSE(models[i].source.empty());
    if (i > 0) {
      EXPECT_LT(models[i - 1].name, models[i].name);
    }
  }
}

TEST(CatalogueModels, NamesAreInLowerCaseAndNeedNoEscape) {
  for (const CatalogueModel& model : catalogue_models()) {
    EXPECT_EQ(model.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-."),
              std::string::npos)
        << model.name;
    EXPECT_EQ(model.source.find('\\'), std::string::npos) << model.source;
  }
}

TEST(CatalogueModels, AUniquePrefixInAnyCaseWillDo) {
  const auto model = catalogue_model("Llama-3.1-8");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model->name, "llama-3.1-8b");
}

TEST(CatalogueModels, AnAmbiguousPrefixIsAnErrorThatListsWhatItBegins) {
  const auto model = catalogue_model("llama-3.1");
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(model.error().message, HasSubstr("llama-3.1-8b, llama-3.1-70b, llama-3.1-405b"));
}

TEST(CatalogueModels, ALongListOfCandidatesIsCutAndTheRestCounted) {
  const auto model = catalogue_model("qwen");
  ASSERT_FALSE(model.has_value());
  const std::string& message = model.error().message;
  EXPECT_EQ(std::count(message.begin(), message.end(), ','), 12) << message;
  EXPECT_THAT(message, HasSubstr(" more"));
}

TEST(CatalogueModels, AnUnknownNameIsAnErrorThatListsTheClosestFirst) {
  const auto model = catalogue_model("llama3.1-8b-instruct");
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(model.error().message, HasSubstr("closest: llama-3.1-8b,"));
}

TEST(CatalogueModels, ANameLikeNoOtherListsNoCandidate) {
  const auto model = catalogue_model("/no/such/folder/of/any/model/whatsoever");
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(model.error().message, Not(HasSubstr("closest")));
}

TEST(CatalogueModels, AreOpenedByNameWhereNoFileHasIt) {
  const auto model = open_model("llama-3.1-8b");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model->name, "llama-3.1-8b");
  const auto unknown = open_model("llama-3.1-9b");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(unknown.error().message, HasSubstr("llama-3.1-9b: no such file or folder"));
  EXPECT_THAT(unknown.error().message, HasSubstr("closest: llama-3.1-8b"));
}

TEST(CatalogueModels, GeometryFromMemorySaysSo) {
  const auto model = catalogue_model("deepseek-llm-67b");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  ASSERT_FALSE(model->notes.empty());
  EXPECT_THAT(model->notes.back(), HasSubstr("from memory"));
}

TEST(CatalogueModels, MayBeLookedUpByManyThreadsAtOnce) {
  std::vector<std::uint32_t> layers(8);
  std::vector<std::thread> threads;
  for (std::uint32_t& result : layers) {
    threads.emplace_back([&result] {
      const auto model = catalogue_model("llama-3.1-405b");
      result = model ? model->num_layers : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(layers, ::testing::Each(126U));
}

TEST(CatalogueDevices, AscendInMemoryAndStateEveryFigureWithItsSource) {
  const auto devices = catalogue_devices();
  ASSERT_EQ(devices.size(), file_of_the_tree("catalogue/devices.json").at("devices").size());
  std::set<std::string> names;
  std::uint64_t memory_bytes = 0;
  for (const HardwareSpec& device : devices) {
    SCOPED_TRACE(device.name);
    EXPECT_GE(device.memory_bytes, memory_bytes);
    memory_bytes = device.memory_bytes;
    EXPECT_GE(device.memory_bytes, std::uint64_t{1} << 30);
    EXPECT_GT(device.bandwidth_bytes_per_s, 1e9);
    EXPECT_GT(device.flop_per_s_16bit, 1e11);
    EXPECT_TRUE(device.flop_per_s_8bit == 0 || device.flop_per_s_8bit >= device.flop_per_s_16bit);
    EXPECT_FALSE(device.source.empty());
    EXPECT_TRUE(names.insert(device.name).second);
  }
}

// Figures of the vendors' datasheets; rates dense, memory in GiB.
TEST(CatalogueDevices, HaveTheFiguresOfTheirDatasheets) {
  struct Row {
    const char* name;
    std::uint64_t gib;
    double gb_per_s, tflop_16bit;
  };
  const Row rows[] = {{"h100-sxm-80gb", 80, 3350, 989},   {"h200-141gb", 141, 4800, 989},
                      {"a100-80gb", 80, 2039, 312},       {"mi300x-192gb", 192, 5300, 1307.4},
                      {"l40s-48gb", 48, 864, 362},        {"rtx-4090-24gb", 24, 1008, 165.2},
                      {"gaudi-3-128gb", 128, 3700, 1835}, {"tpu-v5e-16gb", 16, 819, 197}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const auto device = catalogue_device(row.name);
    ASSERT_TRUE(device.has_value()) << device.error().message;
    EXPECT_EQ(device->memory_bytes, row.gib << 30);
    EXPECT_DOUBLE_EQ(device->bandwidth_bytes_per_s, row.gb_per_s * 1e9);
    EXPECT_DOUBLE_EQ(device->flop_per_s_16bit, row.tflop_16bit * 1e12);
  }
}

TEST(CatalogueDevices, AUniquePrefixWillDoAndAnAmbiguousOneListsTheCandidates) {
  const auto h200 = catalogue_device("H200");
  ASSERT_TRUE(h200.has_value()) << h200.error().message;
  EXPECT_EQ(h200->name, "h200-141gb");
  const auto h100 = catalogue_device("h100");
  ASSERT_FALSE(h100.has_value());
  EXPECT_THAT(h100.error().message, HasSubstr("h100-sxm-80gb"));
}

}  // namespace
}  // namespace kvarto
