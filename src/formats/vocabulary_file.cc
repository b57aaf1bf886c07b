#include "kvarto/vocabulary_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"
#include "formats/gguf.h"
#include "formats/gguf_vocabulary.h"
#include "formats/json_value.h"
#include "spec/keys.h"

namespace kvarto {
namespace {

namespace fs = std::filesystem;

// The largest published tokenizer.json has 34 MB.
constexpr std::size_t kMaxTokenizerBytes = 256u << 20;
constexpr std::size_t kMaxSettingsBytes = 16u << 20;

bool is_file(const fs::path& path) {
  std::error_code problem;
  return fs::is_regular_file(path, problem);
}

Result<MappedFile> open_limited(const std::string& path, std::size_t max_bytes) {
  KVARTO_TRY(MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > max_bytes) {
    return fail(ErrorCode::kCorruptData, fmt::format("{}: found {} bytes, expected at most {}",
                                                     path, file.bytes().size(), max_bytes));
  }
  return file;
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// The settings beside a tokenizer; nothing if there is no such file.
Result<std::optional<Value>> read_settings(const fs::path& path) {
  if (!is_file(path)) return std::nullopt;
  KVARTO_TRY(const MappedFile file, open_limited(path.string(), kMaxSettingsBytes));
  KVARTO_TRY(Value root, parse_json(text_of(file), path.string()));
  return std::optional(std::move(root));
}

// A token by its text, or by a map that has it under "content".
std::optional<TokenId> token_named(const Value* name, const Vocabulary& vocabulary) {
  if (name == nullptr) return std::nullopt;
  if (std::holds_alternative<ValueMap>(name->data)) name = name->find("content");
  const auto* text = name != nullptr ? std::get_if<std::string>(&name->data) : nullptr;
  if (text == nullptr || text->empty()) return std::nullopt;
  const auto& tokens = vocabulary.tokens;
  const auto found = std::find(tokens.begin(), tokens.end(), *text);
  if (found == tokens.end()) return std::nullopt;
  return static_cast<TokenId>(found - tokens.begin());
}

std::optional<TokenId> token_numbered(const Value* number, const Vocabulary& vocabulary) {
  const auto* id = number != nullptr ? std::get_if<std::int64_t>(&number->data) : nullptr;
  if (id == nullptr || *id < 0 || static_cast<std::uint64_t>(*id) >= vocabulary.tokens.size()) {
    return std::nullopt;
  }
  return static_cast<TokenId>(*id);
}

void add_end(std::optional<TokenId> token, Vocabulary& vocabulary) {
  auto& ends = vocabulary.ends;
  if (token && std::find(ends.begin(), ends.end(), *token) == ends.end()) ends.push_back(*token);
}

// tokenizer_config.json: names, and whether they are added.
void apply_tokenizer_config(const Value& root, Vocabulary& vocabulary) {
  if (const auto bos = token_named(root.find("bos_token"), vocabulary)) vocabulary.bos = bos;
  if (const auto eos = token_named(root.find("eos_token"), vocabulary)) vocabulary.eos = eos;
  add_end(vocabulary.eos, vocabulary);
  const std::pair<const char*, bool*> flags[] = {{"add_bos_token", &vocabulary.adds_bos},
                                                 {"add_eos_token", &vocabulary.adds_eos}};
  for (const auto& [key, target] : flags) {
    const Value* value = root.find(key);
    if (value == nullptr) continue;
    if (const bool* flag = std::get_if<bool>(&value->data)) *target = *flag;
  }
}

// generation_config.json and config.json: numbers, of ends one or a list.
void apply_model_config(const Value& root, Vocabulary& vocabulary) {
  if (!vocabulary.bos) vocabulary.bos = token_numbered(root.find("bos_token_id"), vocabulary);
  const Value* ends = root.find("eos_token_id");
  if (ends == nullptr) return;
  if (const auto* list = std::get_if<ValueList>(&ends->data)) {
    for (const Value& each : *list) add_end(token_numbered(&each, vocabulary), vocabulary);
    return;
  }
  const auto eos = token_numbered(ends, vocabulary);
  if (!vocabulary.eos) vocabulary.eos = eos;
  add_end(eos, vocabulary);
}

Result<Vocabulary> with_settings(Vocabulary vocabulary, const fs::path& folder) {
  KVARTO_TRY(const auto tokenizer, read_settings(folder / "tokenizer_config.json"));
  if (tokenizer) apply_tokenizer_config(*tokenizer, vocabulary);
  for (const char* name : {"generation_config.json", "config.json"}) {
    KVARTO_TRY(const auto settings, read_settings(folder / name));
    if (settings) apply_model_config(*settings, vocabulary);
  }
  return vocabulary;
}

Result<Vocabulary> read_json_file(const std::string& path) {
  KVARTO_TRY(const MappedFile file, open_limited(path, kMaxTokenizerBytes));
  KVARTO_TRY(Vocabulary vocabulary, read_tokenizer_json(text_of(file), path));
  return with_settings(std::move(vocabulary), fs::path(path).parent_path());
}

Result<Vocabulary> read_model_file(const std::string& path) {
  KVARTO_TRY(const MappedFile file, open_limited(path, kMaxTokenizerBytes));
  KVARTO_TRY(Vocabulary vocabulary, read_sentencepiece_model(file.bytes(), path));
  return with_settings(std::move(vocabulary), fs::path(path).parent_path());
}

Result<Vocabulary> read_folder(const fs::path& folder) {
  const fs::path json = folder / "tokenizer.json";
  if (is_file(json)) return read_json_file(json.string());
  const fs::path model = folder / "tokenizer.model";
  if (is_file(model)) return read_model_file(model.string());
  return fail(ErrorCode::kNotFound,
              fmt::format("{}: found neither tokenizer.json nor tokenizer.model",
                          folder.empty() ? "." : folder.string()));
}

bool begins_with(const std::string& path, std::string_view magic) {
  if (!is_file(path)) return false;
  const auto file = MappedFile::open(path);
  return file.has_value() && text_of(*file).starts_with(magic);
}

}  // namespace

Result<Vocabulary> read_vocabulary(std::string_view path) {
  const std::string name(path);
  if (name.empty() || name.find('\0') != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument, "the tokenizer's path is empty, expected a file");
  }
  std::error_code problem;
  if (fs::is_directory(name, problem)) return read_folder(name);
  const fs::path file(name);
  if (path.ends_with(".gguf") || begins_with(name, "GGUF")) {
    KVARTO_TRY(const GgufFile model, open_gguf(name));
    return read_gguf_vocabulary(model.parts.front().header, name);
  }
  if (path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json") ||
      file.filename() == "config.json") {
    return read_folder(file.parent_path());
  }
  if (path.ends_with(".json")) return read_json_file(name);
  if (path.ends_with(".model")) return read_model_file(name);
  return fail(fs::exists(file, problem) ? ErrorCode::kUnsupported : ErrorCode::kNotFound,
              fmt::format("{}: found no vocabulary, expected a .gguf, a tokenizer.json, a "
                          "tokenizer.model or a folder with one",
                          name));
}

}  // namespace kvarto
