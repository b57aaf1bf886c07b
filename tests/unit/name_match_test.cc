#include "formats/name_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>

namespace kvarto {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::array<std::string_view, 6> kNames = {"falcon-7b", "glm-5",      "glm-5.1",
                                                    "gpt2",      "qwen2.5-7b", "qwen2.5-72b"};

std::string message_for(std::string_view query) {
  const auto found = match_name(query, "model", kNames);
  EXPECT_FALSE(found.has_value());
  if (found) return "";
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  return found.error().message;
}

TEST(MatchName, AnExactNameWinsOverTheNamesItBegins) {
  EXPECT_EQ(match_name("glm-5", "model", kNames).value(), 1U);
}

TEST(MatchName, AUniquePrefixWillDoAndCaseDoesNotMatter) {
  EXPECT_EQ(match_name("FALCON", "model", kNames).value(), 0U);
  EXPECT_EQ(match_name("glm-5.", "model", kNames).value(), 2U);
}

TEST(MatchName, AnAmbiguousPrefixListsItsCompletionsShortestFirst) {
  EXPECT_THAT(message_for("qwen2.5-7"), EndsWith("found 2 names that begin so, expected one of: "
                                                 "qwen2.5-7b, qwen2.5-72b"));
}

TEST(MatchName, AMisspeltNameListsTheClosestFirst) {
  EXPECT_THAT(message_for("qwen25-72b"), HasSubstr("closest: qwen2.5-72b, qwen2.5-7b"));
  EXPECT_THAT(message_for("falcon7b"), EndsWith("closest: falcon-7b"));
}

TEST(MatchName, ANameWithASuffixOfItsOwnFindsTheNameItExtends) {
  EXPECT_THAT(message_for("qwen2.5-7b-instruct"), HasSubstr("closest: qwen2.5-7b"));
}

TEST(MatchName, AnEqualBeginningOutweighsAFewEditsBehindIt) {
  constexpr std::array<std::string_view, 2> kPair = {"mixtral-8x7b", "mistral-7b-v0.1"};
  const auto found = match_name("mistral-7b-instruct", "model", kPair);
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().message, HasSubstr("closest: mistral-7b-v0.1"));
}

TEST(MatchName, ANameLikeNoOtherPointsToTheList) {
  EXPECT_THAT(message_for("zzzz"), HasSubstr("one of the 6 listed by `kvarto models`"));
  EXPECT_THAT(message_for("/no/such/folder/of/any/model/whatsoever"), Not(HasSubstr("closest")));
}

TEST(MatchName, AnEmptyNameIsAmbiguousAndAHugeOneIsCutInTheMessage) {
  EXPECT_THAT(message_for(""), HasSubstr("found 6 names"));
  EXPECT_LT(message_for(std::string(100'000, 'x')).size(), 300U);
}

}  // namespace
}  // namespace kvarto
