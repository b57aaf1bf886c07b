// Source of the numbers: the config classes of Hugging Face transformers 5.24
// (models/*/configuration_*.py); for types that live in model repositories, the configuration file
// beside the weights.

#include "spec/families/dense_types.h"

#include <algorithm>
#include <array>

namespace kvarto {
namespace {

using Kind = WindowRule::Kind;

constexpr WindowRule kNoWindow{};
constexpr WindowRule every(std::int64_t window) { return {Kind::kEvery, window, 0}; }
constexpr WindowRule pattern(std::int64_t every_nth_is_full, std::int64_t window) {
  return {Kind::kPattern, window, every_nth_is_full};
}
constexpr WindowRule first_full(std::int64_t every_nth, std::int64_t window) {
  return {Kind::kFirstFull, window, every_nth};
}
constexpr WindowRule qwen(std::int64_t window, std::int64_t max_window_layers) {
  return {Kind::kFromLayer, window, max_window_layers};
}

constexpr std::int64_t kKi = 1024;

// clang-format off
//   model type, config class, layers, hidden, heads, KV heads, head dim, max context, windows
constexpr std::array kTypes = {
    DenseType{"afmoe", "AfmoeConfig", 32, 2048, 16, kAsQueryHeads, 128, 16 * kKi, pattern(4, 1024)},
    DenseType{"apertus", "ApertusConfig", 32, 4096, 32, kAsQueryHeads, kDerived,
              64 * kKi, kNoWindow},
    DenseType{"arcee", "ArceeConfig", 32, 2560, 32, kAsQueryHeads, kDerived, 4 * kKi, kNoWindow},
    DenseType{"arctic", "ArcticConfig", 32, 4096, 32, kAsQueryHeads, kDerived, 4 * kKi, every(0)},
    DenseType{"aria_text", "AriaTextConfig", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"baichuan", "BaichuanConfig", 32, 4096, 32, kOneForEach, kDerived,
              4 * kKi, kNoWindow},
    DenseType{"biogpt", "BioGptConfig", 24, 1024, 16, kOneForEach, kDerived, 1 * kKi, kNoWindow},
    DenseType{"bitnet", "BitNetConfig", 30, 2560, 20, 5, kDerived, 2 * kKi, kNoWindow},
    DenseType{"bloom", "BloomConfig", 2, 64, 8, kOneForEach, kDerived, 0, kNoWindow},
    DenseType{"chameleon", "ChameleonConfig", 32, 4096, 32, 32, kDerived, 4 * kKi, kNoWindow},
    DenseType{"codegen", "CodeGenConfig", 28, 4096, 16, kOneForEach, kDerived, 2 * kKi, kNoWindow},
    DenseType{"cohere", "CohereConfig", 40, 8192, 64, kAsQueryHeads, kDerived, 8 * kKi, kNoWindow},
    DenseType{"cohere2", "Cohere2Config", 40, 8192, 64, kAsQueryHeads, kDerived,
              8 * kKi, pattern(4, 4096)},
    DenseType{"ctrl", "CTRLConfig", 48, 1280, 16, kOneForEach, kDerived, 256, kNoWindow},
    DenseType{"cwm", "CwmConfig", 64, 6144, 48, 8, 128, 128 * kKi, first_full(4, 8192)},
    DenseType{"deepseek", "DeepseekConfig", 30, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"diffllama", "DiffLlamaConfig", 16, 2048, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"doge", "DogeConfig", 32, 1024, 8, kAsQueryHeads, kDerived, 2 * kKi, every(0)},
    DenseType{"dots1", "Dots1Config", 62, 4608, 32, 32, kDerived,
              2 * kKi, {Kind::kFromLayer, 4096, 62}},
    DenseType{"emu3_text_model", "Emu3TextConfig", 32, 4096, 32, 8, kDerived, 9 * kKi, kNoWindow},
    DenseType{"ernie4_5", "Ernie4_5Config", 18, 1024, 16, 2, 128, 128 * kKi, kNoWindow},
    DenseType{"ernie4_5_moe", "Ernie4_5_MoeConfig", 28, 2560, 20, 4, kDerived,
              128 * kKi, kNoWindow},
    DenseType{"ernie4_5_vl_moe_text", "Ernie4_5_VLMoeTextConfig", 28, 2560, 20, 4, kDerived,
              128 * kKi, kNoWindow},
    DenseType{"exaone", "ExaoneConfig", 32, 4096, 32, 8, kDerived, 4 * kKi, kNoWindow},
    DenseType{"exaone4", "Exaone4Config", 32, 4096, 32, 32, kDerived, 2 * kKi, pattern(4, 4096)},
    DenseType{"exaone_moe", "ExaoneMoeConfig", 32, 4096, 32, 32, kDerived,
              2 * kKi, pattern(4, 4096)},
    DenseType{"flex_olmo", "FlexOlmoConfig", 32, 4096, 32, kAsQueryHeads, kDerived,
              4 * kKi, kNoWindow},
    DenseType{"gemma", "GemmaConfig", 28, 3072, 16, 16, 256, 8 * kKi, kNoWindow},
    DenseType{"gemma2", "Gemma2Config", 26, 2304, 8, 4, 256, 8 * kKi, pattern(2, 4096)},
    DenseType{"gemma3", "Gemma3TextConfig", 26, 2304, 8, 4, 256, 128 * kKi, pattern(6, 4096)},
    DenseType{"gemma3_text", "Gemma3TextConfig", 26, 2304, 8, 4, 256, 128 * kKi, pattern(6, 4096)},
    DenseType{"glm", "GlmConfig", 40, 4096, 32, 2, 128, 128 * kKi, kNoWindow},
    DenseType{"glm4", "Glm4Config", 40, 4096, 32, 2, 128, 128 * kKi, kNoWindow},
    DenseType{"glm4_moe", "Glm4MoeConfig", 46, 4096, 96, 8, kDerived, 128 * kKi, kNoWindow},
    DenseType{"glm4v", "Glm4vTextConfig", 40, 4096, 32, 2, kDerived, 32 * kKi, kNoWindow},
    DenseType{"glm4v_moe", "Glm4vMoeTextConfig", 46, 4096, 96, 8, kDerived, 64 * kKi, kNoWindow},
    DenseType{"glm4v_moe_text", "Glm4vMoeTextConfig", 46, 4096, 96, 8, kDerived,
              64 * kKi, kNoWindow},
    DenseType{"glm4v_text", "Glm4vTextConfig", 40, 4096, 32, 2, kDerived, 32 * kKi, kNoWindow},
    DenseType{"glm_ocr_text", "GlmOcrTextConfig", 16, 1024, 16, 8, kDerived, 128 * kKi, kNoWindow},
    DenseType{"gpt2", "GPT2Config", 12, 768, 12, kOneForEach, kDerived, 1 * kKi, kNoWindow},
    DenseType{"gpt_neox", "GPTNeoXConfig", 44, 6144, 64, kOneForEach, kDerived, 2 * kKi, kNoWindow},
    DenseType{"gpt_neox_japanese", "GPTNeoXJapaneseConfig", 32, 2560, 32, kOneForEach, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"gpt_oss", "GptOssConfig", 36, 2880, 64, 8, 64, 128 * kKi, pattern(2, 128)},
    DenseType{"gptj", "GPTJConfig", 28, 4096, 16, kOneForEach, kDerived, 2 * kKi, kNoWindow},
    DenseType{"granite", "GraniteConfig", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"granite_swa", "GraniteSWAConfig", 24, 2560, 20, 4, kDerived,
              8 * kKi, first_full(4, 128)},
    DenseType{"granitemoe", "GraniteMoeConfig", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"granitemoe_swa", "GraniteMoeSWAConfig", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, first_full(4, 128)},
    DenseType{"granitemoeshared", "GraniteMoeSharedConfig", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"grok-1", "", 0, 0, 0, kAsQueryHeads, kDerived, 0, kNoWindow},
    DenseType{"helium", "HeliumConfig", 24, 2560, 20, 20, 128, 4 * kKi, kNoWindow},
    DenseType{"hunyuan_v1_dense", "HunYuanDenseV1Config", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"hunyuan_v1_moe", "HunYuanMoEV1Config", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"hy_v3", "HYV3Config", 80, 4096, 64, 8, 128, 128 * kKi, kNoWindow},
    DenseType{"hyperclovax", "HyperCLOVAXConfig", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"idefics", "IdeficsConfig", 32, 4096, 32, kOneForEach, kDerived, 2 * kKi, kNoWindow},
    DenseType{"internlm", "InternLMConfig", 32, 4096, 32, kOneForEach, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"internlm2", "InternLM2Config", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"internlm3", "InternLM3Config", 48, 4096, 32, 2, 128, 32 * kKi, kNoWindow},
    DenseType{"iquestcoder", "IQuestCoderConfig", 80, 5120, 40, 8, 128, 128 * kKi, kNoWindow},
    DenseType{"jais", "JAISConfig", 12, 768, 12, kOneForEach, kDerived, 1 * kKi, kNoWindow},
    DenseType{"jais2", "Jais2Config", 32, 3328, 26, kAsQueryHeads, kDerived, 8 * kKi, kNoWindow},
    DenseType{"laguna", "LagunaConfig", 40, 2048, 48, 8, 128, 128 * kKi, {Kind::kNone, 512, 0}},
    DenseType{"llama", "LlamaConfig", 32, 4096, 32, kAsQueryHeads, kDerived, 2 * kKi, kNoWindow},
    DenseType{"llava", "LlamaConfig", 32, 4096, 32, kAsQueryHeads, kDerived, 2 * kKi, kNoWindow},
    DenseType{"llava_next", "LlamaConfig", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"mellum", "MellumConfig", 28, 2304, 32, 4, 128, 128 * kKi, {Kind::kNone, 1024, 0}},
    DenseType{"minicpm", "MiniCPMConfig", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"minicpmo", "Qwen2Config", 32, 4096, 32, 32, kDerived, 32 * kKi, qwen(4096, 28)},
    DenseType{"minicpmv", "Qwen2Config", 32, 4096, 32, 32, kDerived, 32 * kKi, qwen(4096, 28)},
    DenseType{"minimax_m2", "MiniMaxM2Config", 62, 3072, 48, 8, 128, 192 * kKi, kNoWindow},
    DenseType{"ministral", "MinistralConfig", 32, 4096, 32, 8, kDerived, 128 * kKi, every(4096)},
    DenseType{"ministral3", "Ministral3Config", 34, 4096, 32, 8, 128, 256 * kKi, every(0)},
    DenseType{"mistral", "MistralConfig", 32, 4096, 32, 8, kDerived, 128 * kKi, every(4096)},
    DenseType{"mistral3", "MistralConfig", 32, 4096, 32, 8, kDerived, 128 * kKi, every(4096)},
    DenseType{"mixtral", "MixtralConfig", 32, 4096, 32, 8, kDerived, 128 * kKi, every(0)},
    DenseType{"molmo2_text", "Molmo2TextConfig", 36, 4096, 32, 8, 128, 36 * kKi, kNoWindow},
    DenseType{"muse_glimmer_text", "MuseGlimmerTextConfig", 52, 6656, 32, 2, 128,
              128 * kKi, {Kind::kLastFull, 2048, 4}},
    DenseType{"nanochat", "NanoChatConfig", 12, 768, 6, kAsQueryHeads, kDerived,
              2 * kKi, kNoWindow},
    DenseType{"nemotron", "NemotronConfig", 32, 6144, 48, kAsQueryHeads, kDerived,
              4 * kKi, kNoWindow},
    DenseType{"olmo", "OlmoConfig", 32, 4096, 32, kAsQueryHeads, kDerived, 2 * kKi, kNoWindow},
    DenseType{"olmo2", "Olmo2Config", 32, 4096, 32, kAsQueryHeads, kDerived, 2 * kKi, kNoWindow},
    DenseType{"olmo3", "Olmo3Config", 32, 4096, 32, kAsQueryHeads, kDerived,
              2 * kKi, pattern(4, 4096)},
    DenseType{"olmoe", "OlmoeConfig", 16, 2048, 16, kAsQueryHeads, kDerived, 4 * kKi, kNoWindow},
    DenseType{"openai-gpt", "OpenAIGPTConfig", 12, 768, 12, kOneForEach, kDerived, 512, kNoWindow},
    DenseType{"opt", "OPTConfig", 12, 768, 12, kOneForEach, kDerived, 2 * kKi, kNoWindow},
    DenseType{"orion", "OrionConfig", 40, 5120, 40, kAsQueryHeads, kDerived, 4 * kKi, kNoWindow},
    DenseType{"paligemma", "GemmaConfig", 28, 3072, 16, 16, 256, 8 * kKi, kNoWindow},
    DenseType{"persimmon", "PersimmonConfig", 36, 4096, 64, kOneForEach, kDerived,
              16 * kKi, kNoWindow},
    DenseType{"phi", "PhiConfig", 24, 2048, 32, kAsQueryHeads, kDerived, 2 * kKi, kNoWindow},
    DenseType{"phi-msft", "PhiConfig", 24, 2048, 32, kAsQueryHeads, kDerived, 2 * kKi, kNoWindow},
    DenseType{"phi3", "Phi3Config", 32, 3072, 32, kAsQueryHeads, kDerived, 4 * kKi, every(0)},
    DenseType{"phi3_v", "Phi3Config", 32, 3072, 32, kAsQueryHeads, kDerived, 4 * kKi, every(0)},
    DenseType{"phi4_multimodal", "Phi4MultimodalConfig", 32, 3072, 32, 8, kDerived,
              128 * kKi, every(0)},
    DenseType{"phi4mm", "Phi4MultimodalConfig", 32, 3072, 32, 8, kDerived, 128 * kKi, every(0)},
    DenseType{"phimoe", "PhimoeConfig", 32, 4096, 32, 8, kDerived, 128 * kKi, every(0)},
    DenseType{"qwen", "QWenConfig", 32, 4096, 32, kOneForEach, kDerived, 8 * kKi, kNoWindow},
    DenseType{"qwen2", "Qwen2Config", 32, 4096, 32, 32, kDerived, 32 * kKi, qwen(4096, 28)},
    DenseType{"qwen2_5_omni_text", "Qwen2_5OmniTextConfig", 28, 3584, 28, 4, kDerived,
              32 * kKi, qwen(32768, 28)},
    DenseType{"qwen2_5_vl", "Qwen2_5_VLTextConfig", 80, 8192, 64, 8, kDerived,
              32 * kKi, qwen(4096, 80)},
    DenseType{"qwen2_5_vl_text", "Qwen2_5_VLTextConfig", 80, 8192, 64, 8, kDerived,
              32 * kKi, qwen(4096, 80)},
    DenseType{"qwen2_moe", "Qwen2MoeConfig", 24, 2048, 16, 16, kDerived, 32 * kKi, qwen(4096, 28)},
    DenseType{"qwen2_vl", "Qwen2VLTextConfig", 80, 8192, 64, 8, kDerived, 32 * kKi, qwen(4096, 80)},
    DenseType{"qwen2_vl_text", "Qwen2VLTextConfig", 80, 8192, 64, 8, kDerived,
              32 * kKi, qwen(4096, 80)},
    DenseType{"qwen3", "Qwen3Config", 32, 4096, 32, 32, 128, 32 * kKi, qwen(4096, 28)},
    DenseType{"qwen3_moe", "Qwen3MoeConfig", 24, 2048, 32, 4, kDerived,
              32 * kKi, {Kind::kIfUsed, 4096, 0}},
    DenseType{"qwen3_omni_moe_text", "Qwen3OmniMoeTextConfig", 28, 2048, 28, 4, kDerived,
              32 * kKi, kNoWindow},
    DenseType{"qwen3_vl", "Qwen3VLTextConfig", 32, 4096, 32, 32, 128, 125 * kKi, kNoWindow},
    DenseType{"qwen3_vl_moe", "Qwen3VLMoeTextConfig", 24, 2048, 16, 16, kDerived,
              125 * kKi, kNoWindow},
    DenseType{"qwen3_vl_moe_text", "Qwen3VLMoeTextConfig", 24, 2048, 16, 16, kDerived,
              125 * kKi, kNoWindow},
    DenseType{"qwen3_vl_text", "Qwen3VLTextConfig", 32, 4096, 32, 32, 128, 125 * kKi, kNoWindow},
    DenseType{"sarvam_moe", "SarvamMoEConfig", 19, 4096, 64, 4, 64, 128 * kKi, kNoWindow},
    DenseType{"seed_oss", "SeedOssConfig", 64, 4096, 80, 8, 128, 512 * kKi, kNoWindow},
    DenseType{"smollm3", "SmolLM3Config", 36, 2048, 16, 4, kDerived,
              32 * kKi, {Kind::kNoRope, 0, 0}},
    DenseType{"solar_open", "SolarOpenConfig", 48, 4096, 64, 8, 128, 128 * kKi, kNoWindow},
    DenseType{"stablelm", "StableLmConfig", 32, 2560, 32, 32, kDerived, 4 * kKi, kNoWindow},
    DenseType{"stablelm_epoch", "StableLmConfig", 32, 2560, 32, 32, kDerived, 4 * kKi, kNoWindow},
    DenseType{"starcoder2", "Starcoder2Config", 30, 3072, 24, 2, kDerived, 4 * kKi, every(0)},
    DenseType{"vaultgemma", "VaultGemmaConfig", 26, 2304, 8, 4, 256, 8 * kKi, pattern(2, 4096)},
    DenseType{"xglm", "XGLMConfig", 24, 1024, 16, kOneForEach, kDerived, 2 * kKi, kNoWindow},
    DenseType{"xverse", "XverseConfig", 40, 5120, 40, kOneForEach, kDerived, 2 * kKi, kNoWindow},
};
// clang-format on

static_assert(std::is_sorted(kTypes.begin(), kTypes.end(),
                             [](const DenseType& a, const DenseType& b) {
                               return a.model_type < b.model_type;
                             }));

}  // namespace

std::span<const DenseType> dense_types() { return kTypes; }

const DenseType& dense_type(std::string_view model_type) {
  return *std::lower_bound(
      kTypes.begin(), kTypes.end(), model_type,
      [](const DenseType& type, std::string_view name) { return type.model_type < name; });
}

}  // namespace kvarto
