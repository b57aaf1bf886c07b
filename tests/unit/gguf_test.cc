#include "formats/gguf.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>

#include "formats/gguf_tensor_type.h"
#include "samples/folders.h"
#include "samples/gguf_writer.h"

namespace kvarto {
namespace {

using samples::as_bytes;
using samples::GgufWriter;
using ::testing::HasSubstr;

Result<GgufHeader> parse(const GgufWriter& writer) {
  return parse_gguf(as_bytes(writer.str()), "model.gguf");
}

std::string error_of(const GgufWriter& writer) {
  const auto header = parse(writer);
  return header ? "accepted" : header.error().message;
}

TEST(Gguf, ReadsKeysAndTensors) {
  GgufWriter writer(2, 3);
  writer.string("general.architecture", "llama").u32("llama.block_count", 7);
  writer.strings("tokenizer.ggml.tokens", {"a", "bc", ""});
  writer.tensor("a", {64, 3}, 0, 0).tensor("b", {64}, 8, 768).payload(768 + 2 * 34);
  const auto header = parse(writer);
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ(gguf_string(*header->find("general.architecture")), "llama");
  EXPECT_EQ(gguf_unsigned(*header->find("llama.block_count")), 7u);
  EXPECT_EQ(gguf_strings(*header->find("tokenizer.ggml.tokens")),
            (std::vector<std::string_view>{"a", "bc", ""}));
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].bytes, 64u * 3 * 4);
  EXPECT_EQ(header->tensors[1].bytes, 2u * 34);
  EXPECT_EQ(header->tensors[1].offset, header->tensors[0].offset + 768);
}

TEST(Gguf, AcceptsVersion2AndRefusesOthersByName) {
  EXPECT_TRUE(parse(GgufWriter(0, 0, 2)).has_value());
  EXPECT_THAT(error_of(GgufWriter(0, 0, 1)), HasSubstr("version: found 1"));
  EXPECT_THAT(error_of(GgufWriter(0, 0, 4)), HasSubstr("version: found 4"));
  EXPECT_THAT(error_of(GgufWriter(0, 0, 0)), HasSubstr("version: found 0"));
  EXPECT_THAT(error_of(GgufWriter(0, 0, 0x03000000)), HasSubstr("big-endian"));
}

TEST(Gguf, NamesFileFieldValueAndExpectation) {
  EXPECT_EQ(error_of(GgufWriter(0, 1).u32("general.alignment", 3)),
            "model.gguf: general.alignment: found 3, expected a power of two of at least 8");
}

// One malformed file and a part of the message it must get.
struct Fault {
  const char* name;
  std::function<void(GgufWriter&)> write;
  const char* message;
  std::uint64_t num_tensors = 0;
  std::uint64_t num_keys = 0;
};

class GgufFault : public ::testing::TestWithParam<Fault> {};

TEST_P(GgufFault, IsRefusedByName) {
  GgufWriter writer(GetParam().num_tensors, GetParam().num_keys);
  GetParam().write(writer);
  EXPECT_THAT(error_of(writer), HasSubstr(GetParam().message));
}

constexpr std::uint64_t kHuge = std::uint64_t{1} << 62;

const Fault kFaults[] = {
    {"TensorCountHuge", [](GgufWriter&) {},
     "tensor_count: found 9223372036854775808, expected at most 0", std::uint64_t{1} << 63, 0},
    {"KeyCountHuge", [](GgufWriter&) {}, "metadata_kv_count: found 4611686018427387904", 0, kHuge},
    {"TensorCountBeyondWhatKeysLeave", [](GgufWriter& w) { w.string("a", std::string(100, 'x')); },
     "tensor_count: found 2", 2, 1},
    {"KeyLengthHuge",
     [](GgufWriter& w) { w.number<std::uint64_t>(kHuge).raw(std::string(20, 'k')); },
     "key 0 (length of the name): found 4611686018427387904, expected 1 to 65535", 0, 1},
    {"KeyEmpty", [](GgufWriter& w) { w.u32("", 1); }, "key 0 (length of the name): found 0", 0, 1},
    {"KeyTruncated", [](GgufWriter& w) { w.number<std::uint64_t>(40).raw(std::string(20, 'k')); },
     "key 0 (name): found 20 bytes before the file's end", 0, 1},
    {"StringPastEnd", [](GgufWriter& w) { w.key("a", 8).number<std::uint64_t>(1000).raw("xx"); },
     "a (string 0): found 2 bytes before the file's end, expected 1000 bytes", 0, 1},
    {"StringLengthWraps",
     [](GgufWriter& w) { w.key("a", 8).number<std::uint64_t>(~std::uint64_t{0}).raw("xx"); },
     "a (string 0)", 0, 1},
    {"ValueTypeUnknown", [](GgufWriter& w) { w.key("a", 13).number<std::uint64_t>(0); },
     "a (type): found 13, expected 0 to 12", 0, 1},
    {"ValueTruncated", [](GgufWriter& w) { w.key("a", 10).number<std::uint32_t>(0); },
     "a: found 1 elements of 8 bytes, expected at most the 4 bytes left", 0, 1},
    {"ArrayCountOverflows",
     [](GgufWriter& w) { w.key("a", 9).number<std::uint32_t>(10).number<std::uint64_t>(kHuge); },
     "a: found 4611686018427387904 elements of 8 bytes", 0, 1},
    {"ArrayElementTypeUnknown",
     [](GgufWriter& w) { w.key("a", 9).number<std::uint32_t>(99).number<std::uint64_t>(0); },
     "a (type): found 99", 0, 1},
    {"ArrayOfArrays",
     [](GgufWriter& w) { w.key("a", 9).number<std::uint32_t>(9).number<std::uint64_t>(1); },
     "a: found an array of arrays", 0, 1},
    {"ArrayOfStringsCountHuge",
     [](GgufWriter& w) { w.key("a", 9).number<std::uint32_t>(8).number<std::uint64_t>(kHuge); },
     "a (number of strings): found 4611686018427387904", 0, 1},
    {"ArrayOfStringsTruncated",
     [](GgufWriter& w) {
       w.key("a", 9).number<std::uint32_t>(8).number<std::uint64_t>(2).text("0123456789");
     },
     "a (length of string 1)", 0, 1},
    {"BoolOf2", [](GgufWriter& w) { w.key("a", 7).number<std::uint8_t>(2); },
     "a: found 2, expected 0 or 1", 0, 1},
    {"BoolOf2InArray",
     [](GgufWriter& w) {
       w.key("a", 9).number<std::uint32_t>(7).number<std::uint64_t>(2).raw(std::string("\1\x7f"));
     },
     "a: found 127, expected 0 or 1", 0, 1},
    {"KeyTwice", [](GgufWriter& w) { w.u32("a", 1).u32("b", 1).u32("a", 2); },
     "a: found it twice, expected once", 0, 3},
    {"AlignmentZero", [](GgufWriter& w) { w.u32("general.alignment", 0); },
     "general.alignment: found 0", 0, 1},
    {"AlignmentOf24", [](GgufWriter& w) { w.u32("general.alignment", 24); },
     "general.alignment: found 24", 0, 1},
    {"AlignmentIsText", [](GgufWriter& w) { w.string("general.alignment", "32"); },
     "general.alignment: found another type", 0, 1},
    {"AlignmentBeyondFile",
     [](GgufWriter& w) {
       w.u32("general.alignment", 0x80000000).tensor("t", {8}, 0, 0).payload(32);
     },
     "tensor data: found the file's end", 1, 1},
    {"TensorNameTooLong",
     [](GgufWriter& w) { w.tensor(std::string(65, 't'), {8}, 0, 0).payload(32); },
     "tensor 0 (length of the name): found 65, expected 1 to 64", 1},
    {"FiveDimensions",
     [](GgufWriter& w) {
       w.tensor("t", {1, 1, 1, 1, 1}, 0, 0).payload(32);
     },
     "tensor \"t\" (number of dimensions): found 5, expected at most 4", 1},
    {"DimensionZero",
     [](GgufWriter& w) {
       w.tensor("t", {8, 0}, 0, 0).payload(32);
     },
     "tensor \"t\" (dimension 1): found 0", 1},
    {"ElementsOverflow",
     [](GgufWriter& w) {
       w.tensor("t", {kHuge, 4}, 0, 0).payload(32);
     },
     "expected fewer than 2^63 elements", 1},
    {"BytesOverflow", [](GgufWriter& w) { w.tensor("t", {kHuge}, 28, 0).payload(32); },
     "expected fewer than 2^64 bytes", 1},
    {"TypeUnknown", [](GgufWriter& w) { w.tensor("t", {8}, 200, 0).payload(32); },
     "tensor \"t\" (type): found 200", 1},
    {"TypeRemoved", [](GgufWriter& w) { w.tensor("t", {32}, 37, 0).payload(32); },
     "found 37 (IQ4_NL_4_8, removed from the format)", 1},
    {"RowNotWholeBlocks", [](GgufWriter& w) { w.tensor("t", {48}, 8, 0).payload(102); },
     "(dimension 0): found 48, expected a multiple of 32 for type Q8_0", 1},
    {"OffsetPastEnd", [](GgufWriter& w) { w.tensor("t", {8}, 0, 64).payload(64); },
     "tensor \"t\" (offset): found 64 for 32 bytes", 1},
    {"OffsetWraps",
     [](GgufWriter& w) { w.tensor("t", {8}, 0, ~std::uint64_t{0} - 31).payload(64); },
     "tensor \"t\" (offset): found 18446744073709551584", 1},
    {"OffsetUnaligned", [](GgufWriter& w) { w.tensor("t", {8}, 0, 16).payload(64); },
     "tensor \"t\" (offset): found 16, expected a multiple of the alignment 32", 1},
    {"LastTensorCutShort", [](GgufWriter& w) { w.tensor("t", {8}, 0, 0).payload(31); },
     "tensor \"t\" (offset): found 0 for 32 bytes", 1},
    {"TensorsOverlap",
     [](GgufWriter& w) { w.tensor("b", {8}, 0, 32).tensor("a", {16}, 0, 0).payload(64); },
     "expected it behind tensor \"a\"", 2},
    {"TensorsAtOneOffset",
     [](GgufWriter& w) { w.tensor("b", {8}, 0, 0).tensor("a", {8}, 0, 0).payload(64); },
     "expected it behind tensor", 2},
    {"TensorTwice",
     [](GgufWriter& w) { w.tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32).payload(64); },
     "tensor \"a\": found it twice", 2},
    {"TensorTruncated",
     [](GgufWriter& w) {
       w.text("a").number<std::uint32_t>(2).number<std::uint64_t>(8).raw("12345");
     },
     "tensor \"a\" (dimension)", 1},
};

INSTANTIATE_TEST_SUITE_P(All, GgufFault, ::testing::ValuesIn(kFaults),
                         [](const auto& test) { return test.param.name; });

TEST(Gguf, RefusesEveryShorterVersionOfAFile) {
  GgufWriter writer(1, 2);
  writer.string("general.architecture", "llama").u32("llama.block_count", 7);
  writer.tensor("a", {8}, 0, 0).payload(32);
  for (std::size_t size = 0; size < writer.str().size(); ++size) {
    EXPECT_FALSE(parse_gguf(as_bytes(writer.str().substr(0, size)), "cut").has_value()) << size;
  }
}

TEST(Gguf, AcceptsHolesTrailingBytesAndScalars) {
  GgufWriter writer(2, 0);
  writer.tensor("a", {}, 0, 0).tensor("b", {8}, 0, 64).payload(64 + 32 + 7);
  const auto header = parse(writer);
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ(header->tensors[0].bytes, 4u);
}

TEST(Gguf, WritesNoControlCharactersIntoMessages) {
  const std::string message = error_of(GgufWriter(0, 1).key("\x1b[31mred\n", 13));
  EXPECT_THAT(message, HasSubstr("\\x1b[31mred\\x0a"));
}

// ggml-common.h: bytes of one block. Ids: ggml.h.
TEST(GgufTensorType, HasTheBytesOfGgmlBlocks) {
  const struct {
    std::uint32_t id;
    std::uint32_t elements;
    std::uint32_t bytes;
  } kKnown[] = {{0, 1, 4},      {1, 1, 2},      {8, 32, 34},   {2, 32, 18},    {7, 32, 24},
                {12, 256, 144}, {14, 256, 210}, {19, 256, 50}, {23, 256, 136}, {30, 1, 2},
                {39, 32, 17},   {40, 64, 36},   {41, 128, 18}, {42, 64, 18}};
  for (const auto& known : kKnown) {
    const auto type = gguf_tensor_type(known.id);
    ASSERT_TRUE(type.has_value()) << known.id;
    EXPECT_EQ(tensor_type_layout(*type).block_elements, known.elements) << known.id;
    EXPECT_EQ(tensor_type_layout(*type).block_bytes, known.bytes) << known.id;
  }
}

// ik_llama.cpp, type_traits: blocks of 256 in 136 bytes and a scale of 4 bytes a row; in 70 and 2.
TEST(GgufTensorType, CountsTheScalesOfRows) {
  GgufWriter writer(2, 0);
  writer.tensor("a", {512, 3}, 144, 0).tensor("b", {256, 2, 2}, 145, 832);
  const auto header = parse(writer.payload(832 + 288));
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ(header->tensors[0].bytes, 3u * (2 * 136 + 4));
  EXPECT_EQ(header->tensors[1].bytes, 4u * (70 + 2));
}

// Two parts of one model: part 1 holds the metadata and one tensor, part 2 the other.
std::string part_bytes(std::uint32_t number, std::uint32_t count, std::uint32_t num_tensors = 2) {
  GgufWriter writer(1, 3);
  writer.u32("split.no", number).u32("split.count", count);
  writer.u32("split.tensors.count", num_tensors);
  writer.tensor(fmt::format("t{}", number), {8}, 0, 0).payload(32);
  return writer.str();
}

TEST(GgufSplit, OpensAllPartsWhicheverIsNamed) {
  const samples::TemporaryFolder folder;
  const std::string first = folder.write("m-00001-of-00002.gguf", part_bytes(0, 2));
  const std::string second = folder.write("m-00002-of-00002.gguf", part_bytes(1, 2));
  for (const std::string& named : {first, second}) {
    const auto file = open_gguf(named);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    ASSERT_EQ(file->parts.size(), 2u);
    EXPECT_EQ(file->parts[0].path, first);
    const TensorFile tensors = gguf_tensor_file(*file);
    ASSERT_EQ(tensors.tensors.size(), 2u);
    EXPECT_EQ(tensors.find("t1")->file, 1u);
    EXPECT_EQ(tensors.total_bytes(), 64u);
  }
}

TEST(GgufSplit, NamesTheMissingPart) {
  const samples::TemporaryFolder folder;
  const auto file = open_gguf(folder.write("m-00002-of-00002.gguf", part_bytes(1, 2)));
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(file.error().message, HasSubstr("m-00001-of-00002.gguf: missing"));
}

TEST(GgufSplit, RefusesPartsThatContradictEachOther) {
  const samples::TemporaryFolder folder;
  const std::string first = folder.write("m-00001-of-00002.gguf", part_bytes(0, 2, 3));
  folder.write("m-00002-of-00002.gguf", part_bytes(1, 2, 3));
  EXPECT_THAT(open_gguf(first).error().message, HasSubstr("split.tensors.count: found 3"));
  folder.write("m-00002-of-00002.gguf", part_bytes(0, 2, 3));
  EXPECT_THAT(open_gguf(first).error().message, HasSubstr("split.no: found 0, expected 1"));
  folder.write("m-00002-of-00002.gguf", part_bytes(1, 3, 3));
  EXPECT_THAT(open_gguf(first).error().message, HasSubstr("split.count: found 3, expected 2"));
  const std::string renamed = folder.write("renamed.gguf", part_bytes(0, 2));
  EXPECT_THAT(open_gguf(renamed).error().message, HasSubstr("NAME-00001-of-00002.gguf"));
}

TEST(Gguf, RefusesFoldersPipesAndMissingFiles) {
  const samples::TemporaryFolder folder;
  EXPECT_THAT(open_gguf(folder.path()).error().message, HasSubstr("found a folder"));
  EXPECT_EQ(open_gguf(folder.path("absent.gguf")).error().code, ErrorCode::kNotFound);
  const std::string pipe = folder.path("pipe.gguf");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(open_gguf(pipe).error().message, HasSubstr("found a pipe"));
  EXPECT_THAT(open_gguf(folder.write("empty.gguf", "")).error().message, HasSubstr("magic"));
}

}  // namespace
}  // namespace kvarto
