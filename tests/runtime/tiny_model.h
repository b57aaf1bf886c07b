// Models whose weights come from a formula (tests/golden/make_tiny_models.py), written as files of
// Hugging Face's and of llama.cpp's kind.

#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "samples/gguf_writer.h"

namespace kvarto::samples {

struct TinyTensor {
  std::vector<std::uint64_t> shape;  // outermost dimension first
  std::vector<float> values;
};
using TinyTensors = std::map<std::string, TinyTensor>;

// One entry of tiny_models.json.
struct TinyModel {
  std::string name;
  nlohmann::json config;
  TinyTensors tensors;  // under Hugging Face's names
  std::vector<std::vector<double>> logits;

  [[nodiscard]] std::string type() const { return config.at("model_type").get<std::string>(); }
  [[nodiscard]] bool is_gemma() const { return type().starts_with("gemma"); }
};

struct TinyModels {
  std::vector<std::uint32_t> tokens;
  std::vector<std::uint64_t> positions;
  std::vector<TinyModel> models;
};

[[nodiscard]] inline float formula_value(std::string_view name, std::uint32_t index) {
  std::uint32_t seed = 0x811C9DC5;
  for (const char c : name) seed = (seed ^ static_cast<std::uint8_t>(c)) * 0x01000193;
  std::uint32_t h = (index + 1) * 0x9E3779B1u ^ seed;
  h ^= h >> 15;
  h *= 0x85EBCA77;
  h ^= h >> 13;
  return static_cast<float>(h >> 16) / 32768.0f - 1.0f;
}

[[nodiscard]] inline TinyTensor formula_tensor(const std::string& name,
                                               const std::vector<std::uint64_t>& shape,
                                               float norm_base) {
  TinyTensor tensor{.shape = shape, .values = {}};
  std::uint64_t count = 1;
  for (const std::uint64_t dim : shape) count *= dim;
  for (std::uint32_t i = 0; i < count; ++i) {
    float value = formula_value(name, i);
    if (name.ends_with("norm.weight")) {
      value = norm_base + value / 2;
    } else if (name.find("embed_tokens") == std::string::npos) {
      value /= 4;
    }
    tensor.values.push_back(value);
  }
  return tensor;
}

[[nodiscard]] inline TinyModels tiny_models(const std::string& golden_folder) {
  std::ifstream file(golden_folder + "/tiny_models.json");
  const auto json = nlohmann::json::parse(file);
  TinyModels all{.tokens = json.at("tokens"), .positions = json.at("positions"), .models = {}};
  for (const auto& entry : json.at("models")) {
    TinyModel model{.name = entry.at("name"),
                    .config = entry.at("config"),
                    .tensors = {},
                    .logits = entry.at("logits")};
    for (const auto& [name, shape] : entry.at("tensors").items()) {
      model.tensors[name] = formula_tensor(name, shape, model.is_gemma() ? 0.0f : 1.0f);
    }
    all.models.push_back(std::move(model));
  }
  return all;
}

[[nodiscard]] inline std::string float_bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

[[nodiscard]] inline std::string safetensors_of(const TinyTensors& tensors) {
  nlohmann::ordered_json header;
  std::string payload;
  for (const auto& [name, tensor] : tensors) {
    const std::string bytes = float_bytes(tensor.values);
    header[name] = {{"dtype", "F32"},
                    {"shape", tensor.shape},
                    {"data_offsets", {payload.size(), payload.size() + bytes.size()}}};
    payload += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(file.data(), &length, sizeof length);
  return file + text + payload;
}

// Rows of Q and K as llama.cpp's converter orders them for its "norm" rotation: element i and
// i + half of a head become neighbours.
inline void pair_rows(TinyTensor& tensor, std::uint64_t num_heads) {
  const std::uint64_t rows = tensor.shape[0];
  const std::uint64_t columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
  const std::uint64_t dim = rows / num_heads;
  std::vector<float> paired(tensor.values.size());
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t i = row % dim;
    const std::uint64_t from = row - i + (i % 2 == 0 ? i / 2 : dim / 2 + i / 2);
    std::copy_n(tensor.values.begin() + static_cast<std::ptrdiff_t>(from * columns), columns,
                paired.begin() + static_cast<std::ptrdiff_t>(row * columns));
  }
  tensor.values = paired;
}

[[nodiscard]] inline std::string gguf_name(std::string name, bool is_gemma) {
  const auto replace = [&](std::string_view from, std::string_view to) {
    const std::size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
  };
  if (name.starts_with("lm_head.")) return "output.weight";
  replace("model.embed_tokens", "token_embd");
  replace("model.norm", "output_norm");
  replace("model.layers.", "blk.");
  replace("input_layernorm", "attn_norm");
  replace("post_attention_layernorm", is_gemma ? "post_attention_norm" : "ffn_norm");
  replace("pre_feedforward_layernorm", "ffn_norm");
  replace("post_feedforward_layernorm", "post_ffw_norm");
  replace("self_attn.o_proj", "attn_output");
  for (const std::string part : {"q", "k", "v"}) {
    replace("self_attn." + part + "_proj", "attn_" + part);
    replace("self_attn." + part + "_norm", "attn_" + part + "_norm");
  }
  for (const std::string part : {"gate", "up", "down"}) {
    replace("mlp." + part + "_proj", "ffn_" + part);
  }
  return name;
}

// A GGUF file of tensors of one kind. `keys` writes `num_keys` keys. GGML type 0 is F32.
struct GgufTensorBytes {
  std::string name;
  std::vector<std::uint64_t> shape;  // outermost dimension first
  std::uint32_t type = 0;
  std::string bytes;
};
[[nodiscard]] inline std::string gguf_of(const std::vector<GgufTensorBytes>& tensors,
                                         std::uint64_t num_keys,
                                         const std::function<void(GgufWriter&)>& keys) {
  GgufWriter file(tensors.size(), num_keys);
  keys(file);
  std::uint64_t offset = 0;
  for (const GgufTensorBytes& tensor : tensors) {
    file.tensor(tensor.name, {tensor.shape.rbegin(), tensor.shape.rend()}, tensor.type, offset);
    offset += (tensor.bytes.size() + 31) / 32 * 32;
  }
  for (const GgufTensorBytes& tensor : tensors) file.payload(0).raw(tensor.bytes);
  return file.payload(0).str();
}

}  // namespace kvarto::samples
