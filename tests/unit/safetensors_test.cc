#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples/folders.h"
#include "samples/gguf_writer.h"
#include "samples/safetensors_writer.h"

namespace kvarto {
namespace {

using samples::as_bytes;
using samples::safetensors;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::string& file) {
  const auto header = parse_safetensors(as_bytes(file), "m.safetensors");
  return header ? "accepted" : header.error().message;
}

// A header with the one tensor `t`.
std::string one(std::string_view type, std::string_view shape, std::string_view offsets) {
  std::string text = "{\"t\":{\"dtype\":\"";
  text.append(type).append("\",\"shape\":").append(shape);
  return text.append(",\"data_offsets\":").append(offsets).append("}}");
}

TEST(Safetensors, ReadsTypesShapesAndPlaces) {
  const std::string file = safetensors(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"( "a" : {"data_offsets": [0,4], "shape": [], "dtype": "F32"} }   )",
      16);
  const auto header = parse_safetensors(as_bytes(file), "m.safetensors");
  ASSERT_TRUE(header.has_value()) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 2u);
  const SafetensorsTensor& b = header->tensors[0];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.type, TensorType::kBF16);
  EXPECT_THAT(header->shape(b), ElementsAre(2u, 3u));
  EXPECT_EQ(b.offset, file.size() - 12);
  EXPECT_EQ(b.bytes, 12u);
  EXPECT_TRUE(header->shape(header->tensors[1]).empty());
}

TEST(Safetensors, AcceptsTheEmptyModelAndEmptyTensors) {
  EXPECT_EQ(error_of(safetensors("{}", 0)), "accepted");
  EXPECT_EQ(error_of(safetensors(one("F32", "[0,7]", "[0,0]"), 0)), "accepted");
}

// safetensors 0.7: F4 has 2 elements a byte, F6 4 elements in 3 bytes.
TEST(Safetensors, PacksSubByteTypesIntoWholeBytes) {
  EXPECT_EQ(error_of(safetensors(one("F4", "[3,2]", "[0,3]"), 3)), "accepted");
  EXPECT_EQ(error_of(safetensors(one("F6_E2M3", "[8]", "[0,6]"), 6)), "accepted");
  EXPECT_THAT(error_of(safetensors(one("F4", "[3]", "[0,2]"), 2)), HasSubstr("multiple of 2"));
  EXPECT_THAT(error_of(safetensors(one("F6_E3M2", "[6]", "[0,5]"), 5)), HasSubstr("multiple of 4"));
}

TEST(Safetensors, DecodesEscapedNames) {
  const std::string file = safetensors(
      "{\"\\u0061\\n\\ud83d\\ude00\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
  const auto header = parse_safetensors(as_bytes(file), "m.safetensors");
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ(header->tensors[0].name, "a\n\xF0\x9F\x98\x80");
}

struct Fault {
  const char* name;
  std::string file;
  const char* message;
};

class SafetensorsFault : public ::testing::TestWithParam<Fault> {};

TEST_P(SafetensorsFault, IsRefusedByName) {
  EXPECT_THAT(error_of(GetParam().file), HasSubstr(GetParam().message));
}

std::string with_length(std::uint64_t length, std::string_view rest) {
  std::string file = safetensors(rest, 0);
  std::memcpy(file.data(), &length, sizeof length);
  return file;
}

const Fault kFaults[] = {
    {"Empty", "", "header length: found 0 bytes, expected 8"},
    {"LengthCut", "\x02\0\0", "header length: found 1 bytes"},
    {"LengthZero", with_length(0, ""), "header length: found 0"},
    {"LengthHuge", with_length(~std::uint64_t{0}, "{}"), "found 18446744073709551615"},
    {"LengthPastEnd", with_length(3, "{}"), "header length: found 3, expected no more than the 2"},
    {"NotJson", safetensors("hello", 0), "header: found \"h\" first"},
    {"SpaceFirst", safetensors(" {}", 0), "header: found \" \" first"},
    {"List", safetensors("[]", 0), "header: found \"[\" first"},
    {"Unclosed", safetensors("{\"a\"", 0), "found its end, expected \":\""},
    {"UnclosedString", safetensors("{\"aaaaaaaaaaaaaaaaaaaaaaaa", 0), "expected a closing quote"},
    {"TrailingComma", safetensors("{\"__metadata__\":{},}", 0), "found \"}\", expected a string"},
    {"TrailingText", safetensors("{} x", 0), "found \"x\", expected nothing more"},
    {"BadUtf8", safetensors("{\"aaaaaaaa\xff\":1}", 0), "expected valid UTF-8"},
    {"OverlongUtf8", safetensors("{\"\xc0\x80\":1}", 0), "expected valid UTF-8"},
    {"ControlCharacter", safetensors("{\"a\nb\":1}", 0), "no control character"},
    {"HalfSurrogate", safetensors("{\"\\ud800x\":1}", 0), "a pair of surrogates"},
    {"UnknownEscape", safetensors("{\"\\x41\":1}", 0), "an escape of JSON"},
    {"DeepNesting", safetensors("{\"a\":" + std::string(20'000, '['), 0), "expected \"{\""},
    {"MetadataNumber", safetensors("{\"__metadata__\":{\"a\":1}}", 0), "found \"1\""},
    {"MetadataTwice", safetensors("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
     "__metadata__: found it twice"},
    {"MetadataKeyTwice", safetensors("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0),
     "found key \"a\" twice"},
    {"TensorTwice",
     safetensors(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                 R"("\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                 0),
     "tensor \"a\": found it twice"},
    {"TypeUnknown", safetensors(one("F128", "[1]", "[0,16]"), 16), "(dtype): found \"F128\""},
    {"TypeMissing", safetensors("{\"t\":{\"shape\":[],\"data_offsets\":[0,0]}}", 0),
     "(dtype): found none"},
    {"KeyUnknown", safetensors("{\"t\":{\"stride\":[]}}", 0), "(keys): found \"stride\""},
    {"KeyTwice", safetensors("{\"t\":{\"shape\":[],\"shape\":[]}}", 0), "(keys): found \"shape\""},
    {"ShapeNegative", safetensors(one("F32", "[-1]", "[0,4]"), 4),
     "shape of tensor \"t\": byte 29 of the header: found \"-\", expected a whole number"},
    {"ShapeFraction", safetensors(one("F32", "[1.5]", "[0,4]"), 4), "a whole number"},
    {"ShapeExponent", safetensors(one("F32", "[1e2]", "[0,4]"), 4), "a whole number"},
    {"ShapeLeadingZero", safetensors(one("F32", "[01]", "[0,4]"), 4), "a whole number"},
    {"ShapeText", safetensors(one("F32", "[\"1\"]", "[0,4]"), 4), "a whole number"},
    {"ShapeBeyond64Bits", safetensors(one("F32", "[18446744073709551616]", "[0,4]"), 4),
     "a number below 2^64"},
    {"ElementsOverflow", safetensors(one("F32", "[4294967296,4294967296]", "[0,4]"), 4),
     "(shape): found [4294967296, 4294967296], expected fewer than 2^64"},
    {"BytesOverflow", safetensors(one("F64", "[4611686018427387904]", "[0,4]"), 4),
     "(data_offsets): found 4 bytes, expected fewer than 2^64"},
    {"SizeMismatch", safetensors(one("F32", "[4]", "[0,12]"), 12),
     "(data_offsets): found 12 bytes, expected 16 for 4 elements of F32"},
    {"OffsetsReversed", safetensors(one("F32", "[1]", "[4,0]"), 4), "found [4, 0]"},
    {"OffsetsPastEnd", safetensors(one("F32", "[2]", "[0,8]"), 4), "found [0, 8]"},
    {"OffsetsThree", safetensors(one("F32", "[1]", "[0,4,4]"), 4), "found \",\", expected \"]\""},
    {"Hole", safetensors(one("F32", "[1]", "[4,8]"), 8), "found a start at 4, expected 0"},
    {"TrailingBytes", safetensors(one("F32", "[1]", "[0,4]"), 5),
     "tensor data: found 5 bytes, expected the 4 of all tensors"},
    {"Overlap",
     safetensors(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                 R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                 4),
     "tensor \"b\" (data_offsets): found a start at 2, expected 3"},
};

INSTANTIATE_TEST_SUITE_P(All, SafetensorsFault, ::testing::ValuesIn(kFaults),
                         [](const auto& test) { return test.param.name; });

TEST(Safetensors, RefusesEveryShorterVersionOfAFile) {
  const std::string file = safetensors(one("F32", "[1]", "[0,4]"), 4);
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(error_of(file.substr(0, size)), "accepted") << size;
  }
}

TEST(Safetensors, RefusesHeadersAbove100MillionBytes) {
  const samples::TemporaryFolder folder;
  const std::string path = folder.write("m.safetensors", with_length(100'000'001, "{}"));
  std::filesystem::resize_file(path, 100'000'100);  // a hole on disk
  EXPECT_THAT(read_tensor_file(path).error().message,
              HasSubstr("found 100000001, expected 2 to 100000000"));
}

TEST(SafetensorsIndex, ReadsAllShardsAndNamesWhatIsMissing) {
  const samples::TemporaryFolder folder;
  folder.write("m-1.safetensors", safetensors(one("F32", "[1]", "[0,4]"), 4));
  const std::string index = folder.write("model.safetensors.index.json",
                                         R"({"metadata":{},"weight_map":{"t":"m-1.safetensors"}})");
  const auto list = read_tensor_file(index);
  ASSERT_TRUE(list.has_value()) << list.error().message;
  EXPECT_EQ(list->total_bytes(), 4u);

  folder.write("model.safetensors.index.json", R"({"weight_map":{"u":"m-1.safetensors"}})");
  EXPECT_THAT(read_tensor_file(index).error().message, HasSubstr("tensor \"u\": found none"));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"t":"m-2.safetensors"}})");
  EXPECT_THAT(read_tensor_file(index).error().message, HasSubstr("m-2.safetensors: missing"));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"t":"../m-1.safetensors"}})");
  EXPECT_THAT(read_tensor_file(index).error().message, HasSubstr("weight_map.t: found"));
  folder.write("model.safetensors.index.json", R"({"weight_map":[]})");
  EXPECT_THAT(read_tensor_file(index).error().message, HasSubstr("weight_map: found a list"));
}

}  // namespace
}  // namespace kvarto
