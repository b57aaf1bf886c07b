#include "kvarto/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "cache_models.h"

namespace kvarto {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CacheOptions small_options() {
  CacheOptions options;
  options.block_size = 4;
  options.num_sequences = 3;
  options.context = 64;
  options.micro_batch = 8;
  return options;
}

KvCache cache_of(ModelSpec model, const CacheOptions& options) {
  auto cache = KvCache::create(std::move(model), options);
  EXPECT_TRUE(cache) << cache.error().message;
  return std::move(*cache);
}

// Appends `count` tokens one by one, token t writing {t + base, -t} to every stream in `ids`.
void append_and_write(KvCache& cache, SequenceId sequence, const std::vector<StreamId>& ids,
                      int count, float base = 0) {
  for (int i = 0; i < count; ++i) {
    const std::uint64_t token = *cache.num_tokens(sequence);
    ASSERT_EQ(*cache.append(sequence, 1), Grant::kDone);
    const std::vector<float> row = {static_cast<float>(token) + base, -static_cast<float>(token)};
    for (const StreamId id : ids) ASSERT_TRUE(cache.write(sequence, id, token, source_of(row)));
  }
}

std::vector<float> row_of(const KvCache& cache, SequenceId sequence, StreamId id,
                          std::uint64_t row) {
  std::vector<float> values(2);
  const auto status = cache.read(sequence, id, row, values);
  EXPECT_TRUE(status) << status.error().message;
  return values;
}

TEST(KvCache, TakesBlocksOnlyWhenNeeded) {
  KvCache cache = cache_of(model_of({plain_stream("k")}), small_options());
  const SequenceId sequence = *cache.create_sequence();
  EXPECT_THAT(*cache.num_blocks(sequence), ElementsAre(0));
  ASSERT_TRUE(cache.append(sequence, 4));
  EXPECT_THAT(*cache.num_blocks(sequence), ElementsAre(1));
  ASSERT_TRUE(cache.append(sequence, 1));
  EXPECT_THAT(*cache.num_blocks(sequence), ElementsAre(2));
}

// 4 tokens of 2 f32 elements are 32 bytes, one cache line of 64 each; 3 sequences of 64 / 4 blocks.
TEST(KvCache, AllocatesWholePagesAndTwelveBytesOfBookkeepingABlock) {
  const KvCache cache = cache_of(model_of({plain_stream("k")}, 5), small_options());
  EXPECT_EQ(cache.allocated_bytes(), (48u * 5 * 64 / 4096 + 1) * 4096 + 48 * 12);
}

std::string refusal(const ModelSpec& model, const CacheOptions& options = small_options()) {
  const auto cache = KvCache::create(model, options);
  return cache ? "" : cache.error().message;
}

TEST(KvCache, RefusesModelsThatCannotBe) {
  ModelSpec model = model_of({plain_stream("k")}, 2);
  model.groups[0].streams[0].fields[0].codec = static_cast<Codec>(kNumCodecs);
  EXPECT_THAT(refusal(model), HasSubstr("codec 22, expected one of Codec"));
  EXPECT_THAT(refusal(model_of({plain_stream("k"), plain_stream("k")})),
              HasSubstr("two streams named k"));
  model = model_of({plain_stream("k")}, 2);
  model.groups[0].layers = {5, 5};
  EXPECT_THAT(refusal(model), HasSubstr("layer 5 is named twice"));
  model = model_of({plain_stream("k")}, 2);
  model.groups[0].streams[0].owner_layer = 7;
  EXPECT_THAT(refusal(model), HasSubstr("stream k: owner layer 7"));
  CacheOptions options = small_options();
  options.layout = static_cast<Layout>(77);
  EXPECT_THAT(refusal(model_of({plain_stream("k")}), options), HasSubstr("layout: 77"));
}

TEST(KvCache, ReadsWhatWasWrittenAndZerosBeforeThat) {
  KvCache cache = cache_of(model_of({plain_stream("k")}, 2), small_options());
  const StreamId k = *cache.find_stream(1, "k");
  const SequenceId sequence = *cache.create_sequence();
  append_and_write(cache, sequence, {k}, 6, 10);
  EXPECT_THAT(row_of(cache, sequence, k, 5), ElementsAre(15, -5));
  EXPECT_THAT(row_of(cache, sequence, *cache.find_stream(0, "k"), 5), ElementsAre(0, 0));
}

// From every source type to every cached type, in both layouts, at an odd address: rounding to
// nearest even, as the scalar conversions have it.
TEST(KvCache, RoundsRowsToNearestEven) {
  constexpr std::uint32_t kWidth = 300;
  std::vector<float> row(kWidth);
  for (std::uint32_t i = 0; i < kWidth; ++i) {
    row[i] = std::ldexp(1.0f + static_cast<float>(i * 7919 % 8192) / 8192.0f,
                        static_cast<int>(i % 12) - 6);
  }
  const auto narrowed = [](float value, Codec codec) {
    if (codec == Codec::kF32) return value;
    if (codec == Codec::kF16) return float_from_f16(f16_from_float(value));
    return float_from_bf16(bf16_from_float(value));
  };
  for (const Codec from : {Codec::kF32, Codec::kF16, Codec::kBF16}) {
    const std::size_t size = codec_info(from).element_bits / 8;
    std::vector<std::byte> source(1 + kWidth * size);
    for (std::uint32_t i = 0; i < kWidth; ++i) {
      const std::uint16_t bits =
          from == Codec::kF16 ? f16_from_float(row[i]) : bf16_from_float(row[i]);
      const void* element = from == Codec::kF32 ? static_cast<const void*>(&row[i]) : &bits;
      std::memcpy(source.data() + 1 + i * size, element, size);
    }
    for (const Codec to : {Codec::kF32, Codec::kF16, Codec::kBF16}) {
      for (const Layout layout : {Layout::kGeneric, Layout::kHardware}) {
        CacheOptions options = small_options();
        options.block_size = 16;
        options.layout = layout;
        KvCache cache = cache_of(dense_model(1, kWidth, to), options);
        const SequenceId sequence = *cache.create_sequence();
        ASSERT_TRUE(cache.append(sequence, 6));
        const RowSource rows{from, std::span<const std::byte>(source).subspan(1)};
        ASSERT_TRUE(cache.write(sequence, StreamId{0}, 5, rows));
        std::vector<float> read(kWidth);
        ASSERT_TRUE(cache.read(sequence, StreamId{0}, 5, read));
        for (std::uint32_t i = 0; i < kWidth; ++i) {
          ASSERT_EQ(read[i], narrowed(narrowed(row[i], from), to)) << i;
        }
      }
    }
  }
}

TEST(KvCache, NoFreeBlockIsAnAnswerThatChangesNothing) {
  CacheOptions options = small_options();
  options.blocks_per_track = {2, 1};
  KvCache cache = cache_of(
      model_of({plain_stream("k"), plain_stream("w", {Lifetime::Kind::kWindow, 4})}), options);
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_EQ(*cache.append(sequence, 4), Grant::kDone);
  // Track 0 has a second block, track 1 has none: neither takes one.
  EXPECT_EQ(*cache.append(sequence, 1), Grant::kNoFreeBlock);
  EXPECT_THAT(*cache.num_blocks(sequence), ElementsAre(1, 1));
  EXPECT_EQ(*cache.num_tokens(sequence), 4u);
  EXPECT_TRUE(cache.verify());
}

TEST(KvCache, GivesBackABlockOfAWindowWhenItsLastRowHasLeft) {
  CacheOptions options = small_options();
  KvCache cache = cache_of(
      model_of({plain_stream("k"), plain_stream("w", {Lifetime::Kind::kWindow, 6})}), options);
  const SequenceId sequence = *cache.create_sequence();
  const StreamId w = *cache.find_stream(0, "w");
  append_and_write(cache, sequence, {w}, 9);
  // Token 8 sees rows 3 to 8: row 3 still lies in block 0.
  EXPECT_THAT(*cache.num_blocks(sequence), ElementsAre(3, 3));
  append_and_write(cache, sequence, {w}, 1);
  EXPECT_THAT(*cache.num_blocks(sequence), ElementsAre(3, 2));
  EXPECT_EQ(cache.sequence_view(sequence, w)->first_block, 1u);
  EXPECT_THAT(row_of(cache, sequence, w, 4), ElementsAre(4, -4));
  std::vector<float> gone(2);
  EXPECT_FALSE(cache.read(sequence, w, 3, gone));
}

TEST(KvCache, HoldsWhatTheFirstOfSeveralNewTokensSeesUntilTrimmed) {
  KvCache cache =
      cache_of(model_of({plain_stream("w", {Lifetime::Kind::kWindow, 4})}), small_options());
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_TRUE(cache.append(sequence, 8));
  ASSERT_TRUE(cache.append(sequence, 8));
  EXPECT_EQ(cache.sequence_view(sequence, StreamId{0})->first_block, 1u) << "token 8 sees row 5";
  ASSERT_TRUE(cache.trim(sequence));
  EXPECT_EQ(cache.sequence_view(sequence, StreamId{0})->first_block, 3u) << "token 15 sees row 12";
}

TEST(KvCache, BearsARowOfACompressedStreamEveryFourTokens) {
  KvCache cache = cache_of(model_of({plain_stream("c", {}, 4)}), small_options());
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_TRUE(cache.append(sequence, 7));
  EXPECT_EQ(cache.sequence_view(sequence, StreamId{0})->num_tokens, 1u);
  ASSERT_TRUE(cache.append(sequence, 1));
  EXPECT_EQ(cache.sequence_view(sequence, StreamId{0})->num_tokens, 2u);
}

TEST(KvCache, AForkNeverSeesWhatItsParentWritesLater) {
  KvCache cache = cache_of(model_of({plain_stream("k")}), small_options());
  const StreamId k{0};
  const SequenceId parent = *cache.create_sequence();
  append_and_write(cache, parent, {k}, 6);
  const SequenceId child = **cache.fork(parent, 6);
  append_and_write(cache, parent, {k}, 1, 100);
  append_and_write(cache, child, {k}, 1, 200);
  EXPECT_THAT(row_of(cache, parent, k, 6), ElementsAre(106, -6));
  EXPECT_THAT(row_of(cache, child, k, 6), ElementsAre(206, -6));
  EXPECT_THAT(row_of(cache, child, k, 5), ElementsAre(5, -5));
  EXPECT_EQ(cache.usage()[0].num_free, 48u - 3) << "the first block is still shared";
}

TEST(KvCache, AForkInTheMiddleNeverReadsItsParentsLaterRows) {
  KvCache cache = cache_of(model_of({plain_stream("k")}), small_options());
  const SequenceId parent = *cache.create_sequence();
  append_and_write(cache, parent, {StreamId{0}}, 8, 50);
  const SequenceId child = **cache.fork(parent, 5);
  ASSERT_TRUE(cache.free_sequence(parent));
  // The child is now the only owner of a block that holds three more rows of its parent.
  ASSERT_TRUE(cache.append(child, 2));
  EXPECT_THAT(row_of(cache, child, StreamId{0}, 4), ElementsAre(54, -4));
  EXPECT_THAT(row_of(cache, child, StreamId{0}, 5), ElementsAre(0, 0));
}

TEST(KvCache, RefusesToWriteABlockThatAForkShares) {
  KvCache cache = cache_of(model_of({plain_stream("k")}), small_options());
  const SequenceId parent = *cache.create_sequence();
  append_and_write(cache, parent, {StreamId{0}}, 3);
  ASSERT_TRUE(cache.fork(parent, 3));
  const std::vector<float> row = {1, 1};
  const auto status = cache.write(parent, StreamId{0}, 2, source_of(row));
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("shares"));
  EXPECT_FALSE(*cache.is_writable(parent, StreamId{0}, 2));
}

TEST(KvCache, CopiesASharedStateBeforeItAdvances) {
  KvCache cache =
      cache_of(model_of({state_stream("s", {Truncate::Kind::kAny, 0})}), small_options());
  const SequenceId parent = *cache.create_sequence();
  ASSERT_TRUE(cache.append(parent, 1));
  const std::vector<float> one = {1, 1};
  const std::vector<float> two = {2, 2};
  ASSERT_TRUE(cache.write(parent, StreamId{0}, 0, source_of(one)));
  const SequenceId child = **cache.fork(parent, 1);
  ASSERT_TRUE(cache.append(child, 1));
  ASSERT_TRUE(cache.write(child, StreamId{0}, 0, source_of(two)));
  EXPECT_THAT(row_of(cache, parent, StreamId{0}, 0), ElementsAre(1, 1));
  EXPECT_THAT(row_of(cache, child, StreamId{0}, 0), ElementsAre(2, 2));
}

TEST(KvCache, TruncatesAWindowOnlyToLengthsWhoseRowsAreHeld) {
  KvCache cache = cache_of(
      model_of({plain_stream("k"), plain_stream("window_k", {Lifetime::Kind::kWindow, 6})}),
      small_options());
  const SequenceId sequence = *cache.create_sequence();
  append_and_write(cache, sequence, {StreamId{0}, StreamId{1}}, 16);
  // Blocks from row 8 on are held; the last token of 14 sees rows 8 to 13, that of 13 row 7.
  const auto refused = cache.truncate(sequence, 13);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("window_k"));
  EXPECT_EQ(*cache.num_tokens(sequence), 16u);
  ASSERT_TRUE(cache.truncate(sequence, 14));
  EXPECT_EQ(*cache.num_tokens(sequence), 14u);
  EXPECT_THAT(row_of(cache, sequence, StreamId{1}, 8), ElementsAre(8, -8));
}

TEST(KvCache, TruncatesABoundaryStreamToItsMultiplesAndZeroesItsState) {
  KvCache cache = cache_of(
      model_of({plain_stream("k"), state_stream("hca_state", {Truncate::Kind::kBoundary, 4})}),
      small_options());
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_TRUE(cache.append(sequence, 7));
  const std::vector<float> row = {3, 3};
  ASSERT_TRUE(cache.write(sequence, *cache.find_stream(0, "hca_state"), 0, source_of(row)));
  const auto refused = cache.truncate(sequence, 5);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("hca_state"));
  ASSERT_TRUE(cache.truncate(sequence, 4));
  EXPECT_THAT(row_of(cache, sequence, *cache.find_stream(0, "hca_state"), 0), ElementsAre(0, 0));
}

TEST(KvCache, TruncatesASnapshotStreamToItsSnapshotsAndRestoresTheState) {
  CacheOptions options = small_options();
  options.num_snapshots = 2;
  KvCache cache =
      cache_of(model_of({plain_stream("k"), state_stream("state", {Truncate::Kind::kSnapshot, 0})}),
               options);
  const StreamId state = *cache.find_stream(0, "state");
  const SequenceId sequence = *cache.create_sequence();
  for (int token = 1; token <= 6; ++token) {
    ASSERT_EQ(*cache.append(sequence, 1), Grant::kDone);
    const std::vector<float> row = {static_cast<float>(token), 0};
    ASSERT_TRUE(cache.write(sequence, state, 0, source_of(row)));
    if (token == 3) {
      ASSERT_TRUE(cache.take_snapshot(sequence));
    }
  }
  const auto refused = cache.truncate(sequence, 4);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("stream state"));
  const SequenceId child = **cache.fork(sequence, 3);
  ASSERT_TRUE(cache.truncate(sequence, 3));
  EXPECT_THAT(row_of(cache, sequence, state, 0), ElementsAre(3, 0));
  EXPECT_THAT(row_of(cache, child, state, 0), ElementsAre(3, 0));
  ASSERT_TRUE(cache.append(sequence, 1));
  const std::vector<float> row = {9, 9};
  ASSERT_TRUE(cache.write(sequence, state, 0, source_of(row)));
  EXPECT_THAT(row_of(cache, child, state, 0), ElementsAre(3, 0));
  ASSERT_TRUE(cache.truncate(sequence, 3)) << "the snapshot outlives its use";
  EXPECT_THAT(row_of(cache, sequence, state, 0), ElementsAre(3, 0));
  EXPECT_TRUE(cache.verify());
}

TEST(KvCache, TellsADeadSequenceFromTheOneThatHasItsSlotNow) {
  KvCache cache = cache_of(model_of({plain_stream("k")}), small_options());
  const SequenceId first = *cache.create_sequence();
  ASSERT_TRUE(cache.free_sequence(first));
  const SequenceId second = *cache.create_sequence();
  EXPECT_NE(first, second);
  EXPECT_EQ(cache.append(first, 1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(cache.free_sequence(first));
  EXPECT_FALSE(cache.fork(first, 0));
  EXPECT_FALSE(cache.truncate(first, 0));
  EXPECT_TRUE(cache.append(second, 1));
}

TEST(KvCache, RefusesWrongShapesTypesAndPlaces) {
  ModelSpec model = model_of({plain_stream("k"), plain_stream("q")});
  model.groups[0].streams[1].fields[0].codec = Codec::kInt2;
  model.groups[0].streams[1].fields[0].width = 32;
  KvCache cache = cache_of(model, small_options());
  const SequenceId sequence = *cache.create_sequence();
  ASSERT_TRUE(cache.append(sequence, 2));
  const std::vector<float> row = {1, 2};
  const std::vector<float> three = {1, 2, 3};
  EXPECT_EQ(cache.write(sequence, StreamId{0}, 0, source_of(three)).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache.write(sequence, StreamId{0}, 2, source_of(row)).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache.write(sequence, StreamId{9}, 0, source_of(row)).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_FALSE(cache.write(sequence, StreamId{0}, ~std::uint64_t{0}, source_of(row)));
  EXPECT_EQ(cache.write(sequence, StreamId{1}, 0, source_of(row)).error().code,
            ErrorCode::kUnsupported);
  RowSource quantised = source_of(row);
  quantised.codec = Codec::kInt8;
  EXPECT_EQ(cache.write(sequence, StreamId{0}, 0, quantised).error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(cache.append(sequence, 9)) << "more than the micro-batch";
  EXPECT_FALSE(cache.find_stream(0, "v"));
  EXPECT_FALSE(cache.find_stream(1, "k"));
}

TEST(KvCache, RefusesMoreTokensThanTheContext) {
  KvCache cache = cache_of(model_of({plain_stream("k")}), small_options());
  const SequenceId sequence = *cache.create_sequence();
  for (int i = 0; i < 8; ++i) ASSERT_EQ(*cache.append(sequence, 8), Grant::kDone);
  EXPECT_EQ(cache.append(sequence, 1).error().code, ErrorCode::kInvalidArgument);
}

TEST(KvCache, RefusesWhatCannotBeAllocatedWithBothNumbers) {
  CacheOptions options = small_options();
  options.context = std::uint64_t{1} << 40;
  options.block_size = 1 << 20;
  options.num_sequences = 100;
  const auto cache = KvCache::create(model_of({plain_stream("k")}, 64), options);
  ASSERT_FALSE(cache);
  EXPECT_EQ(cache.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(cache.error().message, HasSubstr("available"));
}

TEST(KvCache, RefusesOptionsThatCannotBe) {
  const ModelSpec model = model_of({plain_stream("k")});
  const auto code = [&](const CacheOptions& options) {
    const auto cache = KvCache::create(model, options);
    return cache ? std::optional<ErrorCode>() : cache.error().code;
  };
  CacheOptions options = small_options();
  options.context = 0;
  EXPECT_EQ(code(options), ErrorCode::kInvalidArgument);
  options = small_options();
  options.num_sequences = 0;
  EXPECT_EQ(code(options), ErrorCode::kInvalidArgument);
  options = small_options();
  options.block_size = 0;
  EXPECT_EQ(code(options), ErrorCode::kInvalidArgument);
  options = small_options();
  options.micro_batch = 0;
  EXPECT_EQ(code(options), ErrorCode::kInvalidArgument);
  options = small_options();
  options.blocks_per_track = {1, 2};
  EXPECT_EQ(code(options), ErrorCode::kInvalidArgument);
  options = small_options();
  options.num_sequences = ~std::uint64_t{0};
  EXPECT_EQ(code(options), ErrorCode::kInvalidArgument);
}

TEST(KvCache, AnswersNoSequenceWhenAllSlotsAreTaken) {
  KvCache cache = cache_of(model_of({plain_stream("k")}), small_options());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cache.create_sequence());
  EXPECT_FALSE(cache.create_sequence());
}

TEST(KvCache, KeepsAContiguousSequenceInOneBlock) {
  CacheOptions options = small_options();
  options.is_contiguous = true;
  options.context = 50;
  KvCache cache = cache_of(model_of({plain_stream("k")}), options);
  EXPECT_EQ(cache.options().block_size, 64u);
  const SequenceId sequence = *cache.create_sequence();
  for (int i = 0; i < 50; ++i) ASSERT_EQ(*cache.append(sequence, 1), Grant::kDone);
  EXPECT_THAT(*cache.num_blocks(sequence), ElementsAre(1));
}

TEST(KvCache, PoisonsFreedBlocksWhereAskedTo) {
  CacheOptions options = small_options();
  options.poisons_freed_blocks = true;
  KvCache cache = cache_of(model_of({plain_stream("k")}), options);
  const SequenceId sequence = *cache.create_sequence();
  append_and_write(cache, sequence, {StreamId{0}}, 4);
  ASSERT_TRUE(cache.free_sequence(sequence));
  EXPECT_EQ(cache.stream_view(StreamId{0})->base[0], std::byte{0xFF});
}

TEST(KvCache, FindsTheStreamsOfTheLayerThatABorrowingLayerReads) {
  ModelSpec model = model_of({plain_stream("k")});
  LayerGroup borrower = model.groups[0];
  borrower.layers = {1};
  borrower.streams[0].owner_layer = 0;
  model.groups.push_back(borrower);
  model.num_layers = 2;
  const KvCache cache = cache_of(model, small_options());
  EXPECT_EQ(*cache.find_stream(1, "k"), *cache.find_stream(0, "k"));
}

TEST(KvCache, ShowsKAndVOfALayerToAttention) {
  KvCache cache = cache_of(dense_model(2, 16, Codec::kF16, 2), small_options());
  const SequenceId a = *cache.create_sequence();
  const SequenceId b = *cache.create_sequence();
  ASSERT_TRUE(cache.append(a, 5));
  ASSERT_TRUE(cache.append(b, 1));
  const std::vector<SequenceId> batch = {b, a};
  const auto view = cache.view(*cache.find_stream(1, "k"), *cache.find_stream(1, "v"), batch);
  ASSERT_TRUE(view);
  const CacheView& seen = view->cache();
  EXPECT_EQ(seen.rows_per_block, 4u);
  EXPECT_EQ(seen.k.heads, 2u);
  EXPECT_EQ(seen.k.width, 16u);
  EXPECT_EQ(seen.k.codec, Codec::kF16);
  ASSERT_EQ(seen.sequences.size(), 2u);
  EXPECT_EQ(seen.sequences[0].num_tokens, 1u);
  EXPECT_EQ(seen.sequences[1].num_tokens, 5u);
  EXPECT_EQ(seen.sequences[1].block_table.size(), 2u);
  EXPECT_NE(seen.k.base, seen.v.base);
}

TEST(KvCache, SaysHowManyBytesAreResidentAndInHugePages) {
  CacheOptions options = small_options();
  options.context = 1 << 16;
  options.is_populated = true;
  options.block_size = 16;
  const KvCache cache = cache_of(dense_model(1, 16, Codec::kF16), options);
  const std::vector<TrackUsage> usage = cache.usage();
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_EQ(usage[0].storage_bytes, 3u * (1 << 16) * 64);
  EXPECT_EQ(usage[0].resident_bytes, usage[0].storage_bytes);
  EXPECT_LE(usage[0].huge_page_bytes, usage[0].resident_bytes);
}

}  // namespace
}  // namespace kvarto
