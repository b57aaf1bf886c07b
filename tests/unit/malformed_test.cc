// The verdicts of the shared collection of malformed files, where it is present.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "kvarto/tensor_file.h"
#include "samples/folders.h"

namespace kvarto {
namespace {

TEST(MalformedCollection, GetsItsVerdicts) {
  const auto folder = samples::shared_folder();
  if (!folder) GTEST_SKIP() << "no shared collection beside the repository";
  std::ifstream file(*folder / "malformed" / "expected.json");
  const auto expected = nlohmann::json::parse(file);
  ASSERT_GT(expected.size(), 0u);
  for (const auto& [name, sample] : expected.items()) {
    const auto tensors = read_tensor_file((*folder / "malformed" / name).string());
    const std::string verdict = sample["verdict"];
    if (verdict == "accept") {
      EXPECT_TRUE(tensors.has_value()) << name << ": " << tensors.error().message;
    } else if (verdict == "reject") {
      EXPECT_FALSE(tensors.has_value()) << name << ": " << sample["why"];
    }
    // A policy is ours to choose; its message is not.
    if (!tensors) {
      EXPECT_NE(tensors.error().message.find("expected"), std::string::npos) << name;
    }
  }
}

}  // namespace
}  // namespace kvarto
