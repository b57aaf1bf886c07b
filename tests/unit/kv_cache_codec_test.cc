// What lies in the blocks of quantised caches, byte by byte.

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cache_models.h"
#include "kernels/dispatch.h"
#include "kvarto/plan.h"

namespace kvarto {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<float> random_rows(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> rows(count);
  for (float& x : rows) x = normal(random);
  return rows;
}

Bytes encoded(Codec codec, std::span<const float> head) {
  Bytes bytes(codec_bytes(codec, head.size()).total());
  kernel_table(Isa::kScalar)
      .encode[static_cast<int>(codec)](head.data(), bytes.data(), head.size());
  return bytes;
}

std::vector<float> round_trip(Codec codec, std::span<const float> head) {
  const Bytes bytes = encoded(codec, head);
  std::vector<float> stored(head.size());
  kernel_table(Isa::kScalar)
      .decode[static_cast<int>(codec)](bytes.data(), stored.data(), head.size());
  return stored;
}

Bytes bytes_at(const std::byte* begin, std::size_t count) { return {begin, begin + count}; }

CacheOptions options_of(Layout layout, std::uint64_t block_size) {
  CacheOptions options;
  options.layout = layout;
  options.block_size = block_size;
  options.context = 64;
  return options;
}

// The first `count` bytes of the blocks that hold the rows of a sequence's only block.
const std::byte* block_of(KvCache& cache, SequenceId sequence, StreamId stream) {
  const SequenceView view = *cache.sequence_view(sequence, stream);
  return cache.writable_base(stream) +
         view.block_table[0] * cache.field_view(stream, 0)->block_stride_bytes;
}

// As ggml keeps a row: the heads of a token side by side, each in whole blocks of 34 bytes.
TEST(KvCacheCodec, GenericRowsAreTheBytesOfTheEngine) {
  KvCache cache =
      *KvCache::create(dense_model(2, 64, Codec::kQ8_0), options_of(Layout::kGeneric, 4));
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_TRUE(cache.append(sequence, 3));
  const StreamId k = *cache.find_stream(0, "k");
  const std::vector<float> rows = random_rows(3 * 2 * 64, 1);
  ASSERT_TRUE(cache.write(sequence, k, 0, source_of(rows)));
  const std::byte* block = block_of(cache, sequence, k);
  for (std::size_t i = 0; i < 6; ++i) {  // row, head
    EXPECT_EQ(bytes_at(block + i * 68, 68),
              encoded(Codec::kQ8_0, std::span(rows).subspan(i * 64, 64)));
  }
  EXPECT_EQ(bytes_at(block + 6 * 68, 2 * 68), Bytes(2 * 68)) << "a row that nobody wrote";
}

TEST(KvCacheCodec, HardwareRowsLieHeadAfterHead) {
  KvCache cache =
      *KvCache::create(dense_model(2, 64, Codec::kNvfp4), options_of(Layout::kHardware, 16));
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_TRUE(cache.append(sequence, 16));
  const StreamId k = *cache.find_stream(0, "k");
  const std::vector<float> rows = random_rows(16 * 2 * 64, 2);
  ASSERT_TRUE(cache.write(sequence, k, 0, source_of(rows)));
  const std::byte* block = block_of(cache, sequence, k);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t head = 0; head < 2; ++head) {
      EXPECT_EQ(bytes_at(block + (head * 16 + row) * 36, 36),
                encoded(Codec::kNvfp4, std::span(rows).subspan((row * 2 + head) * 64, 64)));
    }
  }
}

// FlashMLA's row of DeepSeek-V3.2: 512 e4m3, 4 scales of 4 bytes, 64 bf16.
TEST(KvCacheCodec, LatentRowsOf656BytesAreThoseOfFlashMla) {
  const ModelSpec model =
      *with_types(*geometry_model("dsa", {}, 1), {.key = "fp8_ds_mla", .value = "fp8_ds_mla"});
  KvCache cache = *KvCache::create(model, options_of(Layout::kGeneric, 64));
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_TRUE(cache.append(sequence, 3));
  const StreamId latent = *cache.find_stream(0, "latent");
  const std::vector<float> rows = random_rows(3 * 576, 3);
  ASSERT_TRUE(cache.write(sequence, latent, 0, source_of(rows)));
  const std::byte* block = block_of(cache, sequence, latent);
  std::vector<float> expected;
  for (std::size_t row = 0; row < 3; ++row) {
    const auto nope = std::span(rows).subspan(row * 576, 512);
    const auto rope = std::span(rows).subspan(row * 576 + 512, 64);
    EXPECT_EQ(bytes_at(block + row * 656, 528), encoded(Codec::kFp8Scaled128, nope));
    EXPECT_EQ(bytes_at(block + row * 656 + 528, 128), encoded(Codec::kBF16, rope));
    for (const float x : round_trip(Codec::kFp8Scaled128, nope)) expected.push_back(x);
    for (const float x : round_trip(Codec::kBF16, rope)) expected.push_back(x);
  }
  std::vector<float> read(rows.size());
  ASSERT_TRUE(cache.read(sequence, latent, 0, read));
  EXPECT_EQ(read, expected);
}

// Index keys: the values of all rows of a block, then all scales.
TEST(KvCacheCodec, ScalesOfIndexKeysFollowTheRowsOfTheBlock) {
  const ModelSpec model =
      *with_types(*geometry_model("dsa", {}, 1), {.key = "fp8_ds_mla", .value = "fp8_ds_mla"});
  for (const Layout layout : {Layout::kGeneric, Layout::kHardware}) {
    KvCache cache = *KvCache::create(model, options_of(layout, 64));
    const SequenceId sequence = *cache.create_sequence();
    ASSERT_TRUE(cache.append(sequence, 5));
    const StreamId index = *cache.find_stream(0, "index_key");
    const std::vector<float> rows = random_rows(5 * 128, 4);
    ASSERT_TRUE(cache.write(sequence, index, 0, source_of(rows)));
    const std::byte* block = block_of(cache, sequence, index);
    for (std::size_t row = 0; row < 5; ++row) {
      const Bytes expected = encoded(Codec::kFp8Scaled128, std::span(rows).subspan(row * 128, 128));
      Bytes found = bytes_at(block + row * 128, 128);
      const Bytes scale = bytes_at(block + 64 * 128 + row * 4, 4);
      found.insert(found.end(), scale.begin(), scale.end());
      EXPECT_EQ(found, expected);
    }
    std::vector<float> read(128);
    ASSERT_TRUE(cache.read(sequence, index, 4, read));
    EXPECT_EQ(read, round_trip(Codec::kFp8Scaled128, std::span(rows).subspan(4 * 128, 128)));
  }
}

// FlashMLA's row of DeepSeek-V4: 448 e4m3 and 64 bf16, and behind all rows 7 scales and 1 byte of
// padding each.
TEST(KvCacheCodec, RowsOf584BytesHaveTheirScalesInTheFooter) {
  const ModelSpec model =
      *with_types(*geometry_model("csa", {}, 1), {.key = "fp8_ds_mla", .value = "fp8_ds_mla"});
  KvCache cache = *KvCache::create(model, options_of(Layout::kGeneric, 64));
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_TRUE(cache.append(sequence, 3));
  const StreamId window = *cache.find_stream(0, "window_kv");
  const std::vector<float> rows = random_rows(3 * 512, 5);
  ASSERT_TRUE(cache.write(sequence, window, 0, source_of(rows)));
  const std::byte* block = block_of(cache, sequence, window);
  for (std::size_t row = 0; row < 3; ++row) {
    const Bytes nope = encoded(Codec::kFp8Scaled64, std::span(rows).subspan(row * 512, 448));
    EXPECT_EQ(bytes_at(block + row * 576, 448), bytes_at(nope.data(), 448));
    EXPECT_EQ(bytes_at(block + row * 576 + 448, 128),
              encoded(Codec::kBF16, std::span(rows).subspan(row * 512 + 448, 64)));
    const std::uint64_t rows_per_block = 64;
    EXPECT_EQ(bytes_at(block + rows_per_block * 576 + row * 8, 7), bytes_at(nope.data() + 448, 7));
  }
  std::vector<float> read(512);
  ASSERT_TRUE(cache.read(sequence, window, 2, read));
  EXPECT_EQ(std::vector<float>(read.begin(), read.begin() + 448),
            round_trip(Codec::kFp8Scaled64, std::span(rows).subspan(2 * 512, 448)));
}

TEST(KvCacheCodec, RowsMayComeIn16Bits) {
  KvCache cache =
      *KvCache::create(dense_model(1, 32, Codec::kQ4_0), options_of(Layout::kHardware, 16));
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_TRUE(cache.append(sequence, 1));
  const StreamId k = *cache.find_stream(0, "k");
  const std::vector<float> row = round_trip(Codec::kBF16, random_rows(32, 6));
  std::vector<float> read(32);
  for (const Codec source : {Codec::kBF16, Codec::kF16}) {
    const Bytes bytes = encoded(source, row);
    ASSERT_TRUE(cache.write(sequence, k, 0, {source, bytes}));
    ASSERT_TRUE(cache.read(sequence, k, 0, read));
    EXPECT_EQ(read, round_trip(Codec::kQ4_0, round_trip(source, row)));
  }
}

// Layer 1 alone in 4 bits: the other keeps its type, and both are written and read.
TEST(KvCacheCodec, LayersHaveTypesOfTheirOwn) {
  const std::vector<std::uint32_t> second = {1};
  ModelSpec model =
      *with_types(dense_model(2, 64, Codec::kBF16, 3), {.key = "q8_0", .value = "f16"});
  model = *with_layer_types(model, {.key = "int4", .value = "q4_0"}, second);
  ASSERT_EQ(model.groups.size(), 2u);
  KvCache cache = *KvCache::create(model, options_of(Layout::kHardware, 16));
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_TRUE(cache.append(sequence, 1));
  const std::vector<float> row = random_rows(2 * 64, 7);
  const auto codec_at = [&](std::uint32_t layer, const char* name) {
    return cache.stream_view(*cache.find_stream(layer, name))->codec;
  };
  EXPECT_EQ(codec_at(0, "k"), Codec::kQ8_0);
  EXPECT_EQ(codec_at(1, "k"), Codec::kInt4);
  EXPECT_EQ(codec_at(1, "v"), Codec::kQ4_0);
  EXPECT_EQ(codec_at(2, "v"), Codec::kF16);
  // K and V of 2 heads x 64: q8_0 136 + f16 256 in two layers, int4 72 and q4_0 72 in one.
  std::uint64_t row_bytes = 0;
  for (const Track& track : cache.tracks()) row_bytes += track.block_bytes / 16;
  EXPECT_EQ(row_bytes, 2u * (136 + 256) + 72 + 72);
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    const StreamId k = *cache.find_stream(layer, "k");
    ASSERT_TRUE(cache.write(sequence, k, 0, source_of(row)));
    std::vector<float> read(row.size());
    ASSERT_TRUE(cache.read(sequence, k, 0, read));
    const std::vector<float> stored = round_trip(codec_at(layer, "k"), std::span(row).first(64));
    EXPECT_EQ(std::vector<float>(read.begin(), read.begin() + 64), stored);
  }
  const std::vector<std::uint32_t> missing = {3};
  const auto refused = with_layer_types(model, {.key = "q8_0", .value = "q8_0"}, missing);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("layer 3"), std::string::npos);
}

TEST(KvCacheCodec, BorrowedStreamsHaveTheTypeOfTheirOwner) {
  ModelSpec model = dense_model(2, 64, Codec::kBF16, 2);
  LayerGroup borrower = model.groups[0];
  model.groups[0].layers = {0};
  borrower.layers = {1};
  for (Stream& stream : borrower.streams) stream.owner_layer = 0;
  model.groups.push_back(borrower);
  const std::vector<std::uint32_t> owner = {0};
  model = *with_layer_types(model, {.key = "q4_0", .value = "q8_0"}, owner);
  EXPECT_EQ(model.groups[1].streams[0].fields[0].codec, Codec::kQ4_0);
  EXPECT_EQ(model.groups[1].streams[1].fields[0].codec, Codec::kQ8_0);
  // Asked for the borrower alone, nothing changes: the rows are the owner's.
  const std::vector<std::uint32_t> second = {1};
  model = *with_layer_types(model, {.key = "f16", .value = "f16"}, second);
  EXPECT_EQ(model.groups[1].streams[0].fields[0].codec, Codec::kQ4_0);
}

TEST(KvCacheCodec, HeadsTooWideForScratchAreRefusedAndNamed) {
  KvCache cache =
      *KvCache::create(dense_model(1, 8192, Codec::kInt8), options_of(Layout::kHardware, 16));
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_TRUE(cache.append(sequence, 1));
  std::vector<float> row(8192);
  const Status refused = cache.write(sequence, *cache.find_stream(0, "k"), 0, source_of(row));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("8192 x int8"), std::string::npos);
  EXPECT_FALSE(cache.read(sequence, *cache.find_stream(0, "k"), 0, row));
}

}  // namespace
}  // namespace kvarto
