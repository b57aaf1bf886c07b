#include "type_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "numbers.h"

namespace kvarto::cli {
namespace {

// More than any model has; layers that a model lacks are refused where it is known.
constexpr std::uint64_t kMaxLayer = 9999;

tl::unexpected<Error> refuse(const std::string& word) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--kv-types-by-layer: found {}, expected LAYERS=TYPE or "
                          "LAYERS=KTYPE/VTYPE, as in 0-3=f16 or 7=q8_0/q4_0",
                          word));
}

Result<std::vector<std::uint32_t>> parse_layers(const std::string& text, const std::string& word) {
  const std::size_t dash = text.find('-');
  const auto first = parse_count(text.substr(0, dash));
  const auto last = dash == std::string::npos ? first : parse_count(text.substr(dash + 1));
  if (!first.has_value() || !last.has_value() || *first > *last || *last > kMaxLayer) {
    return refuse(word);
  }
  std::vector<std::uint32_t> layers(*last - *first + 1);
  std::iota(layers.begin(), layers.end(), static_cast<std::uint32_t>(*first));
  return layers;
}

}  // namespace

Result<std::vector<LayerTypes>> parse_layer_types(const std::vector<std::string>& words,
                                                  const std::string& index) {
  std::vector<LayerTypes> all;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) return refuse(word);
    const std::string types = word.substr(equals + 1);
    const std::size_t slash = types.find('/');
    LayerTypes some;
    KVARTO_TRY(some.layers, parse_layers(word.substr(0, equals), word));
    some.types.key = types.substr(0, slash);
    some.types.value = slash == std::string::npos ? some.types.key : types.substr(slash + 1);
    some.types.index = index;
    if (some.types.key.empty() || some.types.value.empty()) return refuse(word);
    all.push_back(std::move(some));
  }
  return all;
}

std::string type_names(TypeUse use) {
  std::vector<std::string_view> names = cache_type_names();
  // Of another engine's caches: its bytes are planned, no kernel here packs them.
  if (use != TypeUse::kPlanned) std::erase(names, "q8_KV");
  // A row that is K and V at once.
  if (use == TypeUse::kHeads) std::erase(names, "fp8_ds_mla");
  return fmt::format("one of {}", fmt::join(names, " "));
}

}  // namespace kvarto::cli
