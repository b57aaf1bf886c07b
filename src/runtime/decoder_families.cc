#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <vector>

#include "runtime/families/all.h"
#include "runtime/family.h"

namespace kvarto {
namespace {

constexpr std::array kFamilies = {&kGemma2Family,  &kGemma3Family, &kLlamaFamily,
                                  &kMistralFamily, &kQwen2Family,  &kQwen3Family};

}  // namespace

std::span<const Family* const> decoder_families() { return kFamilies; }

Result<const Family*> find_family(const ModelSource& source) {
  const bool is_gguf = source.format() == FileFormat::kGguf;
  std::vector<std::string_view> known;
  for (const Family* family : decoder_families()) {
    const std::string_view name = is_gguf ? family->gguf_architecture : family->model_type;
    if (name.empty()) continue;
    if (name == source.architecture()) return family;
    known.push_back(name);
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: found \"{}\", which the runtime does not run; expected one of {}",
                          source.root_keys().where() +
                              (is_gguf ? ": general.architecture" : ": model_type"),
                          source.architecture(), fmt::join(known, ", ")));
}

}  // namespace kvarto
