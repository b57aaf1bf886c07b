#include "formats/byte_level_kinds.h"

#include <algorithm>

namespace kvarto {
namespace {

using Names = std::string_view;
using Patterns = std::string_view;

// The patterns are those of the vocabularies' own tokenizer.json files; the names are llama.cpp's.

constexpr Names kGpt2Names[] = {"gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe"};
constexpr Patterns kGpt2[] = {kGpt2Pattern};

constexpr Names kLlama3Names[] = {"llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2"};
// Those that split like Llama 3, but build every word from merges.
constexpr Names kLlama3MergedNames[] = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"};
constexpr Patterns kLlama3[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Names kQwen2Names[] = {"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"};
constexpr Patterns kQwen2[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Names kFalconNames[] = {"falcon"};
constexpr Patterns kFalcon[] = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Pattern, "[0-9][0-9][0-9]"};

constexpr Names kDefaultNames[] = {"", "default"};
constexpr Patterns kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)",
                                 "[0-9][0-9][0-9]"};

constexpr Names kStarcoderNames[] = {"starcoder", "refact", "command-r", "smollm",
                                     "codeshell", "exaone", "minerva-7b"};
constexpr Patterns kStarcoder[] = {R"(\p{N})", kGpt2Pattern};

constexpr Names kDeepseekCoderNames[] = {"deepseek-coder"};
constexpr Patterns kDeepseekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                       R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)",
                                       R"(\p{N})"};

constexpr Names kDeepseek3Names[] = {"deepseek-v3"};
constexpr Patterns kDeepseek3[] = {
    R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
    R"([!-/:-\x40\x5B-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Names kTekkenNames[] = {"tekken"};
constexpr Patterns kTekken[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Names kGpt4oNames[] = {"gpt-4o", "llama4"};
constexpr Patterns kGpt4o[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr ByteLevelKind kKinds[] = {
    {kGpt2Names, kGpt2},           {kLlama3Names, kLlama3, true, true},
    {kLlama3MergedNames, kLlama3}, {kQwen2Names, kQwen2},
    {kFalconNames, kFalcon},       {kDefaultNames, kDefault},
    {kStarcoderNames, kStarcoder}, {kDeepseekCoderNames, kDeepseekCoder},
    {kDeepseek3Names, kDeepseek3}, {kTekkenNames, kTekken, true, true},
    {kGpt4oNames, kGpt4o},
};

}  // namespace

const ByteLevelKind* byte_level_kind(std::string_view name) {
  for (const ByteLevelKind& kind : kKinds) {
    if (std::find(kind.names.begin(), kind.names.end(), name) != kind.names.end()) return &kind;
  }
  return nullptr;
}

}  // namespace kvarto
