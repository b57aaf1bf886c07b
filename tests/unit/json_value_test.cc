#include "formats/json_value.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace kvarto {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Value parsed(std::string_view text) {
  auto value = parse_json(text, "text");
  EXPECT_TRUE(value.has_value()) << text << ": " << (value ? "" : value.error().message);
  return value ? std::move(*value) : Value{};
}

template <typename T>
bool holds(const Value& value, const T& expected) {
  const T* held = std::get_if<T>(&value.data);
  return held != nullptr && *held == expected;
}

// Whether the tree holds what the reference parser read. Repeated keys do not occur here.
bool is_same(const Value& value, const json& reference) {
  switch (reference.type()) {
    case json::value_t::null:
      return value.is_null();
    case json::value_t::boolean:
      return holds(value, reference.get<bool>());
    case json::value_t::number_integer:
      return holds(value, reference.get<std::int64_t>());
    case json::value_t::number_unsigned: {
      const auto number = reference.get<std::uint64_t>();
      if (number > INT64_MAX) return holds(value, static_cast<double>(number));
      return holds(value, static_cast<std::int64_t>(number));
    }
    case json::value_t::number_float:
      return holds(value, reference.get<double>());
    case json::value_t::string:
      return holds(value, reference.get<std::string>());
    case json::value_t::array: {
      const auto* list = std::get_if<ValueList>(&value.data);
      if (list == nullptr || list->size() != reference.size()) return false;
      for (std::size_t i = 0; i < list->size(); ++i) {
        if (!is_same((*list)[i], reference[i])) return false;
      }
      return true;
    }
    case json::value_t::object: {
      const auto* map = std::get_if<ValueMap>(&value.data);
      if (map == nullptr || map->size() != reference.size()) return false;
      for (const auto& [name, item] : *map) {
        if (!reference.contains(name) || !is_same(item, reference[name])) return false;
      }
      return true;
    }
    default:
      return false;
  }
}

TEST(JsonValue, HoldsEveryKindOfValueInFileOrder) {
  const Value value = parsed(R"( {"z": null, "a": [true, false, -7, 2.5e1, "x"], "m": {}} )");
  const auto& map = std::get<ValueMap>(value.data);
  ASSERT_EQ(map.size(), 3u);
  EXPECT_EQ(map[0].name, "z");
  EXPECT_TRUE(map[0].value.is_null());
  const auto& list = std::get<ValueList>(map[1].value.data);
  ASSERT_EQ(list.size(), 5u);
  EXPECT_EQ(std::get<bool>(list[0].data), true);
  EXPECT_EQ(std::get<bool>(list[1].data), false);
  EXPECT_EQ(std::get<std::int64_t>(list[2].data), -7);
  EXPECT_EQ(std::get<double>(list[3].data), 25.0);
  EXPECT_EQ(std::get<std::string>(list[4].data), "x");
  EXPECT_TRUE(std::get<ValueMap>(map[2].value.data).empty());
}

TEST(JsonValue, ReadsPythonsLiteralsAsReals) {
  const Value value = parsed("[Infinity, -Infinity, NaN, [0.0, Infinity]]");
  const auto& list = std::get<ValueList>(value.data);
  EXPECT_EQ(std::get<double>(list[0].data), HUGE_VAL);
  EXPECT_EQ(std::get<double>(list[1].data), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(std::get<double>(list[2].data)));
  EXPECT_EQ(std::get<double>(std::get<ValueList>(list[3].data)[1].data), HUGE_VAL);
}

TEST(JsonValue, LeavesLiteralsInsideStringsAlone) {
  const Value value = parsed(R"({"Infinity": "a \" NaN, -Infinity", "n": [NaN]})");
  const auto& map = std::get<ValueMap>(value.data);
  EXPECT_EQ(map[0].name, "Infinity");
  EXPECT_EQ(std::get<std::string>(map[0].value.data), "a \" NaN, -Infinity");
}

TEST(JsonValue, HoldsIntegersBeyondInt64AsReals) {
  const Value value = parsed(
      "[9223372036854775807, -9223372036854775808, 9223372036854775808, "
      "340282366920938463463374607431768211456]");
  const auto& list = std::get<ValueList>(value.data);
  EXPECT_EQ(std::get<std::int64_t>(list[0].data), INT64_MAX);
  EXPECT_EQ(std::get<std::int64_t>(list[1].data), INT64_MIN);
  EXPECT_EQ(std::get<double>(list[2].data), 9223372036854775808.0);  // 2^63
  EXPECT_EQ(std::get<double>(list[3].data), std::ldexp(1.0, 128));
}

TEST(JsonValue, DecodesEscapes) {
  const Value value = parsed(R"(["\"\\\/\b\f\n\r\t", "\u00e9\u20AC\ud83d\ude00", "\u0000"])");
  const auto& list = std::get<ValueList>(value.data);
  EXPECT_EQ(std::get<std::string>(list[0].data), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(std::get<std::string>(list[1].data), "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  EXPECT_EQ(std::get<std::string>(list[2].data), std::string(1, '\0'));
}

struct Broken {
  const char* what;
  std::string text;
  std::size_t read;  // bytes up to and with the offending one; numbers are read one byte further
  int line;
  const char* message;
};

class BrokenJson : public testing::TestWithParam<Broken> {};

TEST_P(BrokenJson, IsRefusedWithItsPlaceAndReason) {
  const auto value = parse_json(GetParam().text, "model.json");
  ASSERT_FALSE(value.has_value());
  EXPECT_EQ(value.error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(value.error().message, HasSubstr(fmt::format("model.json: after byte {}, line {}: ",
                                                           GetParam().read, GetParam().line)));
  EXPECT_THAT(value.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    AllKinds, BrokenJson,
    testing::Values(Broken{"Nothing", "", 0, 1, "unexpected end of input"},
                    Broken{"Blanks", " \n ", 3, 2, "unexpected end of input"},
                    Broken{"TwoDocuments", "{} {}", 4, 1, "unexpected '{'; expected end of input"},
                    Broken{"OpenList", "[1, 2", 5, 1, "unexpected end of input; expected ']'"},
                    Broken{"OpenMap", "{\"a\": 1", 7, 1, "unexpected end of input; expected '}'"},
                    Broken{"TrailingComma", "[1,]", 4, 1, "unexpected ']'"},
                    Broken{"TrailingCommaOfMap", "{\"a\":1,}", 8, 1, "expected string literal"},
                    Broken{"BareKey", "{a: 1}", 2, 1, "expected string literal"},
                    Broken{"LiteralAsKey", "{NaN: 1}", 4, 1, "expected a key in quotes"},
                    Broken{"TwoLiterals", "[NaNInfinity]", 12, 1, "expected ']'"},
                    Broken{"NoColon", "{\"a\" 1}", 7, 1, "expected ':'"},
                    Broken{"OpenString", "[\"abc", 5, 1, "missing closing quote"},
                    Broken{"SingleQuotes", "{'a': 1}", 2, 1, "expected string literal"},
                    Broken{"Comment", "{} // x", 4, 1, "expected end of input"},
                    Broken{"WrongWord", "[nul]", 5, 1, "invalid literal"},
                    Broken{"LeadingZero", "[01]", 4, 1, "expected ']'"},
                    Broken{"LeadingPlus", "[+1]", 2, 1, "invalid literal"},
                    Broken{"BareMinus", "[-]", 3, 1, "expected digit"},
                    Broken{"NoFraction", "[1.]", 4, 1, "expected digit"},
                    Broken{"NoExponent", "[1e]", 4, 1, "digit after exponent"},
                    Broken{"TooLarge", "[1e999]", 7, 1, "number overflow"},
                    Broken{"ControlCharacter", "[\"a\nb\"]", 4, 2, "control character U+000A"},
                    Broken{"BadEscape", "[\"\\x\"]", 4, 1, "after backslash"},
                    Broken{"ShortUnicode", "[\"\\u12\"]", 7, 1, "4 hex digits"},
                    Broken{"SignedUnicode", "[\"\\u-123\"]", 5, 1, "4 hex digits"},
                    Broken{"LoneHighSurrogate", "[\"\\ud83dx\"]", 9, 1, "surrogate"},
                    Broken{"LoneLowSurrogate", "[\"\\ude00\"]", 8, 1, "surrogate"},
                    Broken{"OverlongUtf8", "[\"\xC0\xAF\"]", 3, 1, "UTF-8"},
                    Broken{"SurrogateInUtf8", "[\"\xED\xA0\x80\"]", 4, 1, "UTF-8"},
                    Broken{"BeyondUnicode", "[\"\xF4\x90\x80\x80\"]", 4, 1, "UTF-8"},
                    Broken{"CutUtf8", "[\"\xE2\x82\"]", 5, 1, "UTF-8"},
                    Broken{"NulByte", std::string("[\0]", 3), 2, 1, "NUL byte"},
                    Broken{"NulAfterTheDocument", std::string("{}\0{", 4), 3, 1, "NUL byte"},
                    Broken{"RepeatedKey", "{\"a\": 1,\n\"a\": 2}", 12, 2,
                           "key \"a\" appears twice"}),
    [](const auto& test) { return std::string(test.param.what); });

TEST(JsonValue, AcceptsNestingUpToItsLimitOnly) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth), "text").has_value());
  const auto deeper = parse_json(nested(kMaxJsonDepth + 1), "text");
  ASSERT_FALSE(deeper.has_value());
  EXPECT_THAT(deeper.error().message, HasSubstr("more than 128 deep"));
  // A stack of calls as deep as this text would be gone long before its end.
  EXPECT_FALSE(parse_json(std::string(10'000'000, '['), "text").has_value());
}

std::string map_of(int num_keys, int last_key) {
  std::string text = "{";
  for (int i = 0; i < num_keys; ++i) text += fmt::format("\"layer.{}.weight\":{},", i, i);
  return text + fmt::format("\"layer.{}.weight\":0}}", last_key);
}

TEST(JsonValue, FindsARepeatedKeyInALargeMap) {
  EXPECT_TRUE(parse_json(map_of(1000, 1000), "text").has_value());
  const auto repeated = parse_json(map_of(1000, 417), "text");
  ASSERT_FALSE(repeated.has_value());
  EXPECT_THAT(repeated.error().message, HasSubstr("key \"layer.417.weight\" appears twice"));
}

TEST(JsonValue, ReadsALargeMapInLessThanQuadraticTime) {
  // 300,000 keys: 4.5e10 comparisons if each were compared with all before it, minutes of work.
  const std::string text = map_of(300'000, 300'000);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(parse_json(text, "text").has_value());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(JsonValue, KeepsMessagesShortAndPrintable) {
  const std::string name(100'000, 'x');
  const auto value = parse_json(fmt::format("{{\"{0}\":1,\"{0}\":2}}", name), "text");
  ASSERT_FALSE(value.has_value());
  EXPECT_LT(value.error().message.size(), 200u);
  EXPECT_EQ(value.error().message.find('\x1b'), std::string::npos);
}

rc::Gen<json> any_json(int depth) {
  const auto scalar =
      rc::gen::oneOf(rc::gen::just(json()), rc::gen::map<bool>([](bool b) { return json(b); }),
                     rc::gen::map<std::int64_t>([](std::int64_t i) { return json(i); }),
                     rc::gen::map<std::uint64_t>([](std::uint64_t i) { return json(i); }),
                     rc::gen::map<std::int32_t>([](std::int32_t i) { return json(i * 0.37e-9); }),
                     rc::gen::map<std::string>([](const std::string& s) {
                       // Only valid UTF-8 can be written; the escapes cover the rest of the
                       // character set.
                       std::string ascii;
                       for (const char c : s) ascii += static_cast<char>(c & 0x7F);
                       return json(ascii);
                     }));
  if (depth == 0) return scalar;
  const auto items = rc::gen::container<std::vector<json>>(any_json(depth - 1));
  return rc::gen::oneOf(
      scalar, rc::gen::map(items, [](const std::vector<json>& list) { return json(list); }),
      rc::gen::map(items, [](const std::vector<json>& list) {
        json map = json::object();
        for (std::size_t i = 0; i < list.size(); ++i) map[std::string(i, 'k') + "\n"] = list[i];
        return map;
      }));
}

RC_GTEST_PROP(JsonValueProperty, AgreesWithTheReferenceParserOnEveryDocument, ()) {
  const json document = *any_json(2);
  const std::string text = document.dump(*rc::gen::element(-1, 2));
  const auto value = parse_json(text, "text");
  RC_ASSERT(value.has_value());
  RC_ASSERT(is_same(*value, document));
}

RC_GTEST_PROP(JsonValueProperty, AgreesWithTheReferenceParserOnWhatIsNoDocument, ()) {
  std::string text = (*any_json(1)).dump();
  const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
  text[at] = *rc::gen::elementOf(std::string("{}[]\",:.-+0e\\ntuf \x80\xC3\n"));
  const bool is_valid = json::accept(text);
  // A changed byte may make two keys equal, which only this parser refuses.
  const auto value = parse_json(text, "text");
  const bool is_repeated = !value && value.error().message.find("twice") != std::string::npos;
  RC_ASSERT(value.has_value() == is_valid || is_repeated);
}

}  // namespace
}  // namespace kvarto
