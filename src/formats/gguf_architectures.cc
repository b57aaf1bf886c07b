#include "formats/gguf_architectures.h"

#include <algorithm>
#include <array>

namespace kvarto {
namespace {

using Window = GgufWindowRule;
using State = GgufStateRule;

constexpr Window period(std::uint32_t layers, std::uint64_t default_window = 0) {
  return {Window::Kind::kPeriod, layers, false, default_window};
}
constexpr Window full_first(std::uint32_t layers) {
  return {Window::Kind::kPeriod, layers, true, 0};
}
constexpr Window required(std::uint32_t layers) {
  return {Window::Kind::kPeriod, layers, false, 0, true};
}
constexpr Window kList{};  // the file itself lists the layers
constexpr State no_heads(State::Kind kind) { return {State::Place::kNoHeads, kind}; }
constexpr State every(State::Kind kind) { return {State::Place::kEvery, kind}; }
constexpr State kAlone{State::Place::kAlone, State::Kind::kMamba2};
constexpr State kDelta{State::Place::kInterval, State::Kind::kDeltaNet};

// Source: the loaders of llama.cpp, src/models/*.cpp and src/llama-model.cpp, 2025 and 2026.
// Llama 4's chunk of 8,192 tokens is no key of the file.
constexpr std::array kArchitectures = {
    GgufArchitecture{"afmoe", "afmoe", period(4), {}},
    GgufArchitecture{"apertus", "apertus", {}, {}},
    GgufArchitecture{"arcee", "arcee", {}, {}},
    GgufArchitecture{"arctic", "arctic", {}, {}},
    GgufArchitecture{"baichuan", "baichuan", {}, {}},
    GgufArchitecture{"bailingmoe", "bailing_moe", {}, {}},
    GgufArchitecture{"bailingmoe2", "bailing_moe_v2", {}, {}},
    GgufArchitecture{"bailingmoe3", "bailing_moe_v3", {}, no_heads(State::Kind::kKda)},
    GgufArchitecture{"bitnet", "bitnet", {}, {}},
    GgufArchitecture{"bloom", "bloom", {}, {}},
    GgufArchitecture{"chameleon", "chameleon", {}, {}},
    GgufArchitecture{"chatglm", "chatglm", {}, {}},
    GgufArchitecture{"codeshell", "codeshell", {}, {}},
    GgufArchitecture{"cogvlm", "cogvlm", {}, {}},
    GgufArchitecture{"cohere2", "cohere2", required(4), {}},
    GgufArchitecture{"cohere2moe", "cohere2_moe", kList, {}},
    GgufArchitecture{"command-r", "cohere", {}, {}},
    GgufArchitecture{"dbrx", "dbrx", {}, {}},
    GgufArchitecture{"deci", "nemotron-nas", {}, {}, false, 0, 0, true},
    GgufArchitecture{"deepseek", "deepseek", {}, {}},
    GgufArchitecture{"deepseek2", "deepseek2", {}, {}},
    GgufArchitecture{"deepseek2-ocr", "deepseek2-ocr", {}, {}},
    GgufArchitecture{"deepseek32", "deepseek_v32", {}, {}},
    GgufArchitecture{"deepseek4", "deepseek_v4", {}, {}, true},
    GgufArchitecture{"dots1", "dots1", {}, {}},
    GgufArchitecture{"dream", "dream", {}, {}},
    GgufArchitecture{"ernie4_5", "ernie4_5", {}, {}},
    GgufArchitecture{"ernie4_5-moe", "ernie4_5_moe", {}, {}},
    GgufArchitecture{"exaone", "exaone", {}, {}},
    GgufArchitecture{"exaone-moe", "exaone_moe", period(4), {}},
    GgufArchitecture{"exaone4", "exaone4", period(4, 4096), {}, false, 0, 64},
    GgufArchitecture{"falcon", "falcon", {}, {}},
    GgufArchitecture{"falcon-h1", "falcon_h1", {}, {State::Place::kBeside, State::Kind::kMamba2}},
    GgufArchitecture{"gemma", "gemma", {}, {}},
    GgufArchitecture{"gemma-embedding", "gemma3_text", required(6), {}},
    GgufArchitecture{"gemma2", "gemma2", period(2, 4096), {}},
    GgufArchitecture{"gemma3", "gemma3_text", required(6), {}},
    GgufArchitecture{"gemma3n", "gemma3n_text", required(5), {}, false, 20},
    GgufArchitecture{"gemma4", "gemma4_text", kList, {}},
    GgufArchitecture{"glm-dsa", "glm_moe_dsa", {}, {}},
    GgufArchitecture{"glm4", "glm4", {}, {}},
    GgufArchitecture{"glm4moe", "glm4_moe", {}, {}},
    GgufArchitecture{"glm5next", "glm5_next", {}, no_heads(State::Kind::kKda)},
    GgufArchitecture{"gpt-oss", "gpt_oss", required(2), {}},
    GgufArchitecture{"gpt2", "gpt2", {}, {}},
    GgufArchitecture{"gptj", "gptj", {}, {}},
    GgufArchitecture{"gptneox", "gpt_neox", {}, {}},
    GgufArchitecture{"granite", "granite", {}, {}},
    GgufArchitecture{"granitehybrid", "granitemoehybrid", {}, no_heads(State::Kind::kMamba2)},
    GgufArchitecture{"granitemoe", "granitemoe", {}, {}},
    GgufArchitecture{"grok", "grok-1", {}, {}},
    GgufArchitecture{"grovemoe", "grove_moe", {}, {}},
    GgufArchitecture{"hunyuan-dense", "hunyuan_v1_dense", {}, {}},
    GgufArchitecture{"hunyuan-moe", "hunyuan_v1_moe", {}, {}},
    GgufArchitecture{"internlm2", "internlm2", {}, {}},
    GgufArchitecture{"jais", "jais", {}, {}},
    GgufArchitecture{"jais2", "jais2", {}, {}},
    GgufArchitecture{"jamba", "jamba", {}, no_heads(State::Kind::kMamba)},
    GgufArchitecture{"kimi-k3", "kimi_k3", {}, no_heads(State::Kind::kKda)},
    GgufArchitecture{"kimi-linear", "kimi_linear", {}, no_heads(State::Kind::kKda)},
    GgufArchitecture{"laguna", "laguna", full_first(4), {}},
    GgufArchitecture{"lfm2", "lfm2", kList, no_heads(State::Kind::kShortConv)},
    GgufArchitecture{"lfm2moe", "lfm2_moe", kList, no_heads(State::Kind::kShortConv)},
    GgufArchitecture{"llada", "llada", {}, {}},
    GgufArchitecture{"llada-moe", "llada_moe", {}, {}},
    GgufArchitecture{"llama", "llama", {}, {}},
    GgufArchitecture{"llama4", "llama4_text", {Window::Kind::kChunk, 4, false, 8192}, {}},
    GgufArchitecture{"maincoder", "maincoder", {}, {}},
    GgufArchitecture{"mamba", "mamba", {}, every(State::Kind::kMamba)},
    GgufArchitecture{"mamba2", "mamba2", {}, every(State::Kind::kMamba2)},
    GgufArchitecture{"mellum", "mellum", kList, {}},
    GgufArchitecture{"mimo2", "mimo_v2_flash", kList, {}},
    GgufArchitecture{"minicpm", "minicpm", {}, {}},
    GgufArchitecture{"minicpm3", "minicpm3", {}, {}},
    GgufArchitecture{"minimax-m2", "minimax_m2", {}, {}},
    GgufArchitecture{"minimax-m3", "minimax_m3", {}, {}},
    GgufArchitecture{"mistral3", "mistral3", {}, {}},
    GgufArchitecture{"mistral4", "mistral4", {}, {}},
    GgufArchitecture{"mpt", "mpt", {}, {}},
    GgufArchitecture{"nemotron", "nemotron", {}, {}},
    GgufArchitecture{"nemotron_h", "nemotron_h", {}, kAlone},
    GgufArchitecture{"nemotron_h_moe", "nemotron_h", {}, kAlone},
    GgufArchitecture{"olmo", "olmo", {}, {}},
    GgufArchitecture{"olmo2", "olmo2", period(4), {}},
    GgufArchitecture{"olmoe", "olmoe", {}, {}},
    GgufArchitecture{"openelm", "openelm", {}, {}},
    GgufArchitecture{"orion", "orion", {}, {}},
    GgufArchitecture{"paddleocr", "paddleocr_vl", {}, {}},
    GgufArchitecture{"pangu-embedded", "pangu_embedded", {}, {}},
    GgufArchitecture{"phi2", "phi", {}, {}},
    GgufArchitecture{"phi3", "phi3", {}, {}},
    GgufArchitecture{"phimoe", "phimoe", {}, {}},
    GgufArchitecture{"plamo", "plamo", {}, {}},
    GgufArchitecture{"plamo2", "plamo2", {}, no_heads(State::Kind::kMamba2)},
    GgufArchitecture{"plamo3", "plamo3", period(8), {}},
    GgufArchitecture{"plm", "plm", {}, {}},
    GgufArchitecture{"qwen", "qwen", {}, {}},
    GgufArchitecture{"qwen2", "qwen2", {}, {}},
    GgufArchitecture{"qwen2moe", "qwen2_moe", {}, {}},
    GgufArchitecture{"qwen2vl", "qwen2_vl", {}, {}},
    GgufArchitecture{"qwen3", "qwen3", {}, {}},
    GgufArchitecture{"qwen35", "qwen3_5", {}, kDelta},
    GgufArchitecture{"qwen35moe", "qwen3_5_moe", {}, kDelta},
    GgufArchitecture{"qwen3moe", "qwen3_moe", {}, {}},
    GgufArchitecture{"qwen3next", "qwen3_next", {}, kDelta},
    GgufArchitecture{"qwen3vl", "qwen3_vl", {}, {}},
    GgufArchitecture{"qwen3vlmoe", "qwen3_vl_moe", {}, {}},
    GgufArchitecture{"qwen4exp", "qwen4_exp", {}, kDelta},
    GgufArchitecture{"refact", "refact", {}, {}},
    GgufArchitecture{"rnd1", "rnd1", {}, {}},
    GgufArchitecture{"rwkv6", "rwkv6", {}, every(State::Kind::kRwkv)},
    GgufArchitecture{"rwkv6qwen2", "rwkv6qwen2", {}, every(State::Kind::kRwkv)},
    GgufArchitecture{"rwkv7", "rwkv7", {}, every(State::Kind::kRwkv)},
    GgufArchitecture{"arwkv7", "arwkv7", {}, every(State::Kind::kRwkv)},
    GgufArchitecture{"seed_oss", "seed_oss", {}, {}},
    GgufArchitecture{"smallthinker", "smallthinker", full_first(4), {}},
    GgufArchitecture{"smollm3", "smollm3", {}, {}},
    GgufArchitecture{"stablelm", "stablelm", {}, {}},
    GgufArchitecture{"starcoder", "gpt_bigcode", {}, {}},
    GgufArchitecture{"starcoder2", "starcoder2", {}, {}},
    GgufArchitecture{"step35", "step3p5", kList, {}},
    GgufArchitecture{"xverse", "xverse", {}, {}},
};

// No cache: the whole text is attended at once, or there is no text at all.
constexpr std::array<std::string_view, 13> kEncoders = {
    "bert",           "clip",      "eurobert",        "jina-bert-v2", "jina-bert-v3",
    "llama-embed",    "mmproj",    "modern-bert",     "neo-bert",     "nomic-bert",
    "nomic-bert-moe", "t5encoder", "wavtokenizer-dec"};

}  // namespace

const GgufArchitecture* gguf_architecture(std::string_view name) {
  const auto row = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                [&](const GgufArchitecture& a) { return a.name == name; });
  return row == kArchitectures.end() ? nullptr : &*row;
}

bool is_gguf_encoder(std::string_view name) {
  return std::find(kEncoders.begin(), kEncoders.end(), name) != kEncoders.end();
}

}  // namespace kvarto
