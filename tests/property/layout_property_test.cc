// Layouts change where bytes lie and nothing else.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cache_models.h"
#include "kernels/dispatch.h"
#include "kvarto/layout_convert.h"

namespace kvarto {
namespace {

using rc::gen::inRange;

// K and V, or one row of two fields, in any codec.
LayerGroup any_group() {
  const auto codec = [] {
    return all_codecs()[*inRange<std::size_t>(0, all_codecs().size())].codec;
  };
  ModelSpec model = dense_model(*inRange(1u, 5u), 32 * *inRange(1u, 4u), codec());
  LayerGroup group = model.groups[0];
  if (*rc::gen::arbitrary<bool>()) {
    Stream& rows = group.streams[0];
    rows.fields.push_back(rows.fields[0]);
    rows.fields[1].codec = codec();
    rows.row_pad_bytes = *inRange(0u, 3u);
    rows.scales_in_footer = *rc::gen::arbitrary<bool>();
  }
  return group;
}

RC_GTEST_PROP(LayoutProperty, ToHardwareAndBackIsBitExact, ()) {
  const LayerGroup group = any_group();
  const auto stream = *inRange(0u, 2u);
  const std::uint64_t rows = *rc::gen::element<std::uint64_t>(1, 4, 16, 48, 50);
  const std::uint64_t bytes = row_bytes(group.streams[stream]).total() * rows;
  std::vector<std::byte> generic(bytes);
  const auto seed = *inRange(1u, 1000u);
  for (std::size_t i = 0; i < bytes; ++i) {
    generic[i] = static_cast<std::byte>((i * 2654435761u * seed) >> 13);
  }
  std::vector<std::byte> hardware(bytes);
  const SliceLayout slice{group, stream, rows};
  RC_ASSERT(
      convert_layout(slice, Layout::kGeneric, generic, Layout::kHardware, hardware).has_value());
  std::vector<std::byte> returned = generic;
  for (std::byte& byte : returned) byte = ~byte;  // none is right by chance
  RC_ASSERT(
      convert_layout(slice, Layout::kHardware, hardware, Layout::kGeneric, returned).has_value());
  RC_ASSERT(returned == generic);
}

// What a type keeps of one head, by the definition of its codec.
std::vector<float> stored(Codec codec, std::span<const float> head) {
  const KernelTable& kernels = kernel_table(Isa::kScalar);
  std::vector<std::byte> bytes(codec_bytes(codec, head.size()).total());
  kernels.encode[static_cast<int>(codec)](head.data(), bytes.data(), head.size());
  std::vector<float> values(head.size());
  kernels.decode[static_cast<int>(codec)](bytes.data(), values.data(), head.size());
  return values;
}

// The same tokens, forks and cuts in caches of different layouts and blocks read back the same, in
// every type that can be written.
RC_GTEST_PROP(LayoutProperty, EveryLayoutAndBlockSizeReadsBackTheSame, ()) {
  std::vector<Codec> codecs;
  for (const CodecInfo& info : all_codecs()) {
    if (kernel_table(Isa::kScalar).encode[static_cast<int>(info.codec)] != nullptr) {
      codecs.push_back(info.codec);
    }
  }
  RC_ASSERT(codecs.size() == 18u);
  const Codec codec = codecs[*inRange<std::size_t>(0, codecs.size())];
  // Half of them widths that tiles of integer codes hold.
  const bool is_column = *rc::gen::arbitrary<bool>();
  const std::uint32_t any_width = is_column ? 16 * *inRange(1u, 11u) : *inRange(1u, 40u);
  const std::string name = *rc::gen::element<std::string>("k", "v");
  const bool is_any_width = codec_info(codec).is_partial_group_allowed;
  const ModelSpec model =
      dense_model(*inRange(1u, 4u), is_any_width ? any_width : 32 * (1 + any_width % 3), codec, 2);
  const std::uint64_t width = model.groups[0].streams[0].fields[0].width;
  const std::uint64_t elements = std::uint64_t{model.groups[0].streams[0].fields[0].heads} * width;
  const std::uint64_t tokens = *inRange<std::uint64_t>(1, 70);
  std::vector<float> rows(tokens * elements);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 251) - 125;
  std::vector<float> expected;
  for (std::size_t i = 0; i < rows.size(); i += width) {
    for (const float x : stored(codec, std::span(rows).subspan(i, width))) expected.push_back(x);
  }
  const std::uint64_t cut = *inRange<std::uint64_t>(0, tokens + 1);
  for (const Layout layout : {Layout::kGeneric, Layout::kHardware}) {
    for (const std::uint64_t block_size : {1, 7, 16, 32, 0}) {
      CacheOptions options;
      options.layout = layout;
      options.is_contiguous = block_size == 0;
      options.block_size = block_size;
      options.context = 70;
      options.num_sequences = 2;
      KvCache cache = *KvCache::create(model, options);
      const SequenceId parent = *cache.create_sequence();
      RC_ASSERT(*cache.append(parent, tokens) == Grant::kDone);
      const StreamId stream = *cache.find_stream(1, name);
      RC_ASSERT(cache.write(parent, stream, 0, source_of(rows)).has_value());
      const SequenceId child = **cache.fork(parent, cut);
      RC_ASSERT(cache.free_sequence(parent).has_value());
      std::vector<float> read(cut * elements);
      RC_ASSERT(cache.read(child, stream, 0, read).has_value());
      RC_ASSERT(std::equal(read.begin(), read.end(), expected.begin()));
    }
  }
}

}  // namespace
}  // namespace kvarto
