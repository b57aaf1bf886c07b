#include "kvarto/stream.h"

#include <gtest/gtest.h>

#include "kvarto/tracks.h"

namespace kvarto {
namespace {

Stream stream_with(Lifetime lifetime, std::uint64_t tokens_per_row = 1) {
  Stream stream;
  stream.name = "k";
  stream.fields = {{.name = "k", .heads = 2, .width = 64, .codec = Codec::kF16}};
  stream.lifetime = lifetime;
  stream.tokens_per_row = tokens_per_row;
  return stream;
}

// FlashMLA README: 512 e4m3 + 4 f32 scales + 64 bf16 = 656 bytes a token.
TEST(Stream, HasTheFp8LatentRowOf656Bytes) {
  Stream stream;
  stream.fields = {{.name = "latent", .width = 512, .codec = Codec::kFp8Scaled128},
                   {.name = "rope", .width = 64, .codec = Codec::kBF16}};
  EXPECT_EQ(row_bytes(stream).total(), 656u);
}

// DeepSeek-V4: 448 e4m3 + 7 ue8m0 scales + 64 bf16 + 1 byte of padding = 584 bytes a row.
TEST(Stream, HasTheV4RowOf584Bytes) {
  Stream stream;
  stream.fields = {{.name = "nope", .width = 448, .codec = Codec::kFp8Scaled64},
                   {.name = "rope", .width = 64, .codec = Codec::kBF16}};
  stream.row_pad_bytes = 1;
  EXPECT_EQ(row_bytes(stream).payload, 448u + 128u);
  EXPECT_EQ(row_bytes(stream).scales, 7u);
  EXPECT_EQ(row_bytes(stream).total(), 584u);
}

TEST(Stream, CountsWholeGroupsOnly) {
  const Stream stream = stream_with({}, 128);
  EXPECT_EQ(resident_rows(stream, 127), 0u);
  EXPECT_EQ(resident_rows(stream, 128), 1u);
  EXPECT_EQ(resident_rows(stream, 300), 2u);
}

TEST(Stream, KeepsNoMoreRowsThanItsWindow) {
  const Stream stream = stream_with({Lifetime::Kind::kWindow, 100});
  EXPECT_EQ(resident_rows(stream, 99), 99u);
  EXPECT_EQ(resident_rows(stream, 1000), 100u);
}

TEST(Stream, DropsAChunkAtItsEndButPeaksAtTheWholeChunk) {
  const Stream stream = stream_with({Lifetime::Kind::kChunk, 100});
  EXPECT_EQ(resident_rows(stream, 100), 100u);
  EXPECT_EQ(resident_rows(stream, 101), 1u);
  EXPECT_EQ(peak_rows(stream, 101), 100u);
}

Track track_with(Lifetime lifetime, std::uint64_t rows_per_block,
                 std::uint64_t tokens_per_row = 1) {
  Track track;
  track.tokens_per_row = tokens_per_row;
  track.lifetime = lifetime;
  track.rows_per_block = rows_per_block;
  return track;
}

TEST(Track, HoldsOneBlockMoreThanTheWindowWhenItStraddles) {
  const Track track = track_with({Lifetime::Kind::kWindow, 128}, 16);
  EXPECT_EQ(resident_blocks(track, 128), 8u);
  EXPECT_EQ(resident_blocks(track, 129), 9u);
  EXPECT_EQ(resident_blocks(track, 144), 8u);
  EXPECT_EQ(peak_blocks(track, 1000, 1), 9u);
  EXPECT_EQ(peak_blocks(track, 100, 1), 7u);
}

// 4 tokens after token 5 bear one row, and the 5th token still saw two rows behind it.
TEST(Track, HoldsTheRowsThatAnAppendBearsBesideTheWindowOfItsFirstToken) {
  const Track track = track_with({Lifetime::Kind::kWindow, 2}, 1, 4);
  EXPECT_EQ(peak_blocks(track, 1000, 1), 2u);
  EXPECT_EQ(peak_blocks(track, 1000, 4), 3u);
  EXPECT_EQ(peak_blocks(track, 1000, ~std::uint64_t{0}), 250u);
}

TEST(Track, SharesPrefixesInTheLeastCommonMultipleOfItsSpans) {
  EXPECT_EQ(share_unit_tokens({track_with({}, 16), track_with({}, 4, 4), track_with({}, 1, 128)}),
            128u);
}

}  // namespace
}  // namespace kvarto
