// KVARTO_ISA decides what runs: this program is started once for every value (CMakeLists.txt).

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "kernels/dispatch.h"
#include "reference/cache_case.h"

namespace kvarto::test {
namespace {

TEST(ForcedIsa, RunsWhatTheEnvironmentNamesAndNothingElse) {
  const char* value = std::getenv("KVARTO_ISA");
  const std::string request = value == nullptr ? "" : value;
  auto runner = AttentionRunner::create({});
  const auto is_request = [&](Isa isa) { return isa_name(isa) == request; };
  if (!request.empty() && std::ranges::none_of(supported_isas(), is_request)) {
    ASSERT_FALSE(runner.has_value());
    EXPECT_NE(runner.error().message.find("KVARTO_ISA: found \"" + request), std::string::npos)
        << runner.error().message;
    return;
  }
  ASSERT_TRUE(runner.has_value()) << runner.error().message;
  CacheCase test{CaseShape{}};
  const auto report = runner->decode(test.decode_call());
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->isa, request.empty() ? isa_name(supported_isas().back()) : request);
  expect_matches_reference(test, {});
}

}  // namespace
}  // namespace kvarto::test
