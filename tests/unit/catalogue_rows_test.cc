// Every row of the fact sheet on model geometries against the streams of the catalogue's model.

#include "unit/catalogue_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <set>
#include <string>

#include "kvarto/catalogue.h"

namespace kvarto {

void PrintTo(const CatalogueRow& row, std::ostream* out) { *out << row.name; }

namespace {

ModelSpec model_with_types(const std::string& name, const CacheTypes& types) {
  auto model = catalogue_model(name);
  EXPECT_TRUE(model.has_value()) << name << ": " << (model ? "" : model.error().message);
  if (!model) return {};
  auto typed = with_types(*std::move(model), types);
  EXPECT_TRUE(typed.has_value()) << name << ": " << (typed ? "" : typed.error().message);
  return typed ? *std::move(typed) : ModelSpec{};
}

bool is_owned(const Stream& stream) { return !stream.owner_layer.has_value(); }
bool has_kind(const Stream& stream, Lifetime::Kind kind) { return stream.lifetime.kind == kind; }
bool is_local(const Stream& stream) {
  return has_kind(stream, Lifetime::Kind::kWindow) || has_kind(stream, Lifetime::Kind::kChunk);
}
bool is_cached_row(const Stream& stream) {
  return is_owned(stream) && (has_kind(stream, Lifetime::Kind::kNever) || is_local(stream));
}

// Sums of the fact sheet's columns, from the streams.
struct Sums {
  double all_layers = 0, growing = 0, index = 0;
  std::uint64_t fixed = 0;
  std::uint32_t layers = 0;
  std::array<std::uint32_t, 3> full_local_linear{};
};

Sums sums_of(const ModelSpec& model) {
  Sums sums;
  for (const LayerGroup& group : model.groups) {
    const auto layers = static_cast<std::uint32_t>(group.layers.size());
    const double count = layers;
    if (!group.streams.empty()) sums.layers += layers;
    bool has_full = false, has_local = false, has_state = false;
    for (const Stream& stream : group.streams) {
      if (!is_owned(stream)) continue;
      const std::uint64_t row = row_bytes(stream).total();
      const double per_token =
          static_cast<double>(row) * count / static_cast<double>(stream.tokens_per_row);
      if (is_cached_row(stream)) sums.all_layers += per_token;
      if (has_kind(stream, Lifetime::Kind::kNever)) {
        sums.growing += per_token;
        if (stream.purpose == Purpose::kIndexer) sums.index += per_token;
        has_full = has_full || stream.purpose == Purpose::kAttention;
      } else if (is_local(stream)) {
        sums.fixed += row * layers * stream.lifetime.tokens;
        has_local = true;
      } else if (has_kind(stream, Lifetime::Kind::kConstant)) {
        sums.fixed += row * layers;
        has_state = true;
      }
    }
    if (has_full) {
      sums.full_local_linear[0] += layers;
    } else if (has_local) {
      sums.full_local_linear[1] += layers;
    } else if (has_state) {
      sums.full_local_linear[2] += layers;
    }
  }
  return sums;
}

// The first stream called `name` of a layer whose rows never die, or else of any layer.
const Stream* find_stream(const ModelSpec& model, const std::string& name) {
  const Stream* found = nullptr;
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) {
      if (stream.name != name || !is_owned(stream)) continue;
      if (has_kind(stream, Lifetime::Kind::kNever)) return &stream;
      if (found == nullptr) found = &stream;
    }
  }
  return found;
}

class CatalogueModelRow : public ::testing::TestWithParam<CatalogueRow> {};

TEST_P(CatalogueModelRow, HasTheBytesOfTheFactSheet) {
  const CatalogueRow& row = GetParam();
  const ModelSpec model = model_with_types(row.name, {});
  const Sums sums = sums_of(model);
  // The sheet leaves the index keys of MiniMax-M3 (57 x 128 x 2 B) out of its columns.
  const double index_apart = row.number == 78 ? 14'592 : 0;
  if (index_apart > 0) {
    EXPECT_EQ(sums.index, index_apart);
  }
  EXPECT_EQ(sums.all_layers - index_apart, static_cast<double>(row.all_layers_bytes_per_token));
  EXPECT_EQ(sums.growing - index_apart, static_cast<double>(row.growing_bytes_per_token));
  EXPECT_EQ(sums.fixed, row.fixed_bytes_per_sequence);
}

TEST_P(CatalogueModelRow, HasTheGeometryOfTheFactSheet) {
  const CatalogueRow& row = GetParam();
  const ModelSpec model = model_with_types(row.name, {});
  const Sums sums = sums_of(model);
  EXPECT_EQ(sums.layers, row.layers);
  EXPECT_EQ(sums.full_local_linear, row.full_local_linear);
  EXPECT_EQ(model.max_context, row.max_context);
  if (row.k_width == 0) return;  // states alone
  for (const LayerGroup& group : model.groups) {
    if (std::any_of(group.streams.begin(), group.streams.end(), is_cached_row)) {
      EXPECT_EQ(group.query.q_heads, row.q_heads);
    }
  }
  if (row.kv_heads == 0) {
    const Stream* latent = find_stream(model, "latent");
    ASSERT_NE(latent, nullptr);
    std::uint32_t width = 0;
    for (const Field& field : latent->fields) width += field.heads * field.width;
    EXPECT_EQ(latent->fields.front().width, row.k_width);
    EXPECT_EQ(width, row.k_width + row.v_width);
    return;
  }
  const Stream* k = find_stream(model, "k");
  const Stream* v = find_stream(model, "v");
  ASSERT_NE(k, nullptr);
  ASSERT_NE(v, nullptr);
  EXPECT_EQ(k->fields.front().heads, row.kv_heads);
  EXPECT_EQ(k->fields.front().width, row.k_width);
  EXPECT_EQ(v->fields.front().heads, row.kv_heads);
  EXPECT_EQ(v->fields.front().width, row.v_width);
}

std::string test_name(const ::testing::TestParamInfo<CatalogueRow>& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Table, CatalogueModelRow, ::testing::ValuesIn(kCatalogueRows), test_name);

// 21 x (584 + 68) / 4 + 20 x 584 / 128, and 43 windows of 128 rows of 584 B beside
// 21 x (65,536 + 16,384) + 20 x 524,288 B of compressor states.
TEST(CatalogueDeepSeekV4, FlashHasTheSlopeAndTheFixedBytesOfItsReleaseFormat) {
  const Sums sums =
      sums_of(model_with_types("deepseek-v4-flash", {"fp8_ds_mla", "fp8_ds_mla", ""}));
  EXPECT_EQ(sums.growing, 3514.25);
  EXPECT_EQ(sums.fixed, 3'214'336U + 12'206'080U);
}

// 30 x (584 + 68) / 4 + 31 x 584 / 128 = 5,031.4375.
TEST(CatalogueDeepSeekV4, ProHasTheSlopeAndTheFixedBytesOfItsReleaseFormat) {
  const Sums sums = sums_of(model_with_types("deepseek-v4-pro", {"fp8_ds_mla", "fp8_ds_mla", ""}));
  EXPECT_EQ(sums.growing, 5031.4375);
  EXPECT_EQ(sums.fixed, 4'559'872U + 18'710'528U);
}

// The same with 132 bytes for an index key.
TEST(CatalogueDeepSeekV4, Fp8IndexKeysHaveTheSlopeOfTheFactSheet) {
  const CacheTypes types{"fp8_ds_mla", "fp8_ds_mla", "fp8"};
  EXPECT_EQ(sums_of(model_with_types("deepseek-v4-flash", types)).growing, 3850.25);
  EXPECT_EQ(sums_of(model_with_types("deepseek-v4-pro", types)).growing, 5511.4375);
}

// 21 x (1,024 + 256) / 4 + 20 x 1,024 / 128, and 30 and 31 layers of Pro.
TEST(CatalogueDeepSeekV4, Bf16RowsAndIndexKeysHaveTheSlopeOfTheFactSheet) {
  EXPECT_EQ(sums_of(model_with_types("deepseek-v4-flash", {"bf16", "bf16", "bf16"})).growing,
            6'880);
  EXPECT_EQ(sums_of(model_with_types("deepseek-v4-pro", {"bf16", "bf16", "bf16"})).growing, 9'848);
}

// (3 / 2 + 1) x (288 + 68) B: four owner layers, three of ratio 2 and one of ratio 1.
TEST(CatalogueDeepSeekV4, V41HasTheSlopeOfItsPaper) {
  EXPECT_EQ(sums_of(model_with_types("deepseek-v4.1-flash", {"auto", "auto", ""})).growing, 890);
}

// 61 x (656 + 132).
TEST(CatalogueDeepSeekV32, Fp8RowsHaveTheSlopeOfTheFactSheet) {
  EXPECT_EQ(sums_of(model_with_types("deepseek-v3.2", {"fp8_ds_mla", "fp8_ds_mla", ""})).growing,
            48'068);
}

TEST(CatalogueModels, AreAllOfAKnownFamily) {
  for (const CatalogueModel& entry : catalogue_models()) {
    SCOPED_TRACE(entry.name);
    const ModelSpec model = model_with_types(entry.name, {});
    EXPECT_FALSE(model.is_unknown_type);
    EXPECT_EQ(model.name, entry.name);
    EXPECT_FALSE(model.groups.empty());
  }
}

TEST(CatalogueModels, EveryRowOfTheFactSheetIsThere) {
  std::set<int> numbers;
  for (const CatalogueRow& row : kCatalogueRows) numbers.insert(row.number);
  numbers.insert({63, 64, 65});  // DeepSeek-V4, tested on their own
  numbers.erase(0);
  EXPECT_EQ(numbers.size(), 111U);
}

}  // namespace
}  // namespace kvarto
