// Tiny models of every family against Hugging Face transformers, from both kinds of files.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kvarto/runtime.h"
#include "runtime/tiny_model.h"
#include "samples/folders.h"

namespace kvarto {
namespace {

using samples::GgufWriter;
using samples::TinyModel;

const samples::TinyModels& golden() {
  static const samples::TinyModels models =
      samples::tiny_models(std::string(KVARTO_SOURCE_DIR) + "/tests/golden");
  return models;
}

class TinyModelOf : public testing::TestWithParam<std::size_t> {
 protected:
  [[nodiscard]] const TinyModel& model() const { return golden().models[GetParam()]; }
};
std::string case_name(const testing::TestParamInfo<std::size_t>& info) {
  std::string name = golden().models[info.param].name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == ','; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(EveryFamily, TinyModelOf,
                         testing::Range<std::size_t>(0, golden().models.size()), case_name);

SessionOptions exact(std::uint64_t chunk_size) {
  SessionOptions options;
  options.context = 64;
  options.cache_types = {.key = "f32", .value = "f32", .index = ""};
  options.chunk_size = chunk_size;
  options.num_threads = 2;
  return options;
}

// Logits of all tokens, fed in chunks.
std::vector<std::vector<float>> all_logits(const std::string& path, std::uint64_t chunk_size) {
  const auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) {
    ADD_FAILURE() << checkpoint.error().message;
    return {};
  }
  auto session = Session::create(*checkpoint, exact(chunk_size));
  if (!session) {
    ADD_FAILURE() << session.error().message;
    return {};
  }
  std::vector<std::vector<float>> logits;
  FeedCallbacks callbacks;
  callbacks.on_logits = [&](std::uint64_t, std::span<const float> row) {
    logits.emplace_back(row.begin(), row.end());
  };
  const auto fed = session->feed(golden().tokens, callbacks);
  if (!fed) ADD_FAILURE() << fed.error().message;
  return logits;
}

void expect_golden(const std::vector<std::vector<float>>& found, const TinyModel& model) {
  ASSERT_EQ(found.size(), golden().tokens.size());
  for (std::size_t p = 0; p < model.logits.size(); ++p) {
    const std::vector<double>& expected = model.logits[p];
    const std::vector<float>& row = found[golden().positions[p]];
    ASSERT_EQ(row.size(), expected.size());
    double largest = 0;
    for (const double logit : expected) largest = std::max(largest, std::abs(logit));
    for (std::size_t i = 0; i < row.size(); ++i) {
      // The bound that is asked of f32 arithmetic in another order.
      EXPECT_NEAR(row[i], expected[i], 1e-4 * largest)
          << model.name << ", position " << golden().positions[p] << ", token " << i;
    }
  }
}

TEST_P(TinyModelOf, HasTheLogitsOfTransformersFromSafetensors) {
  const samples::TemporaryFolder folder;
  folder.write("config.json", model().config.dump());
  folder.write("model.safetensors", samples::safetensors_of(model().tensors));
  for (const std::uint64_t chunk_size : {64, 7, 1}) {
    expect_golden(all_logits(folder.path(), chunk_size), model());
  }
}

// --- The same model as llama.cpp's converter writes it
// --------------------------------------------

struct GgufText {
  std::string name;
  std::function<void(GgufWriter&, const std::string&)> write;
};

void add_rope_keys(const TinyModel& model, std::vector<GgufText>& keys) {
  const auto real = [&](const std::string& name, double value) {
    keys.push_back({name, [value](GgufWriter& file, const std::string& key) {
                      file.key(key, 6).number<float>(static_cast<float>(value));
                    }});
  };
  real("rope.freq_base",
       model.config.value("rope_theta", model.type() == "gemma3_text" ? 1e6 : 1e4));
  if (!model.config.contains("rope_scaling")) return;
  const auto& scaling = model.config.at("rope_scaling");
  const std::string type = scaling.at("rope_type");
  if (type == "llama3") return;  // a tensor of divisors
  keys.push_back({"rope.scaling.type",
                  [type](GgufWriter& file, const std::string& key) { file.string(key, type); }});
  real("rope.scaling.factor", scaling.at("factor"));
  if (type != "yarn") return;
  real("rope.scaling.original_context_length", scaling.at("original_max_position_embeddings"));
  real("rope.scaling.yarn_beta_fast", scaling.value("beta_fast", 32.0));
}

std::vector<GgufText> gguf_keys(const TinyModel& model) {
  std::vector<GgufText> keys;
  const auto number = [&](const std::string& name, const char* config, std::uint32_t otherwise) {
    const auto value = model.config.value(config, otherwise);
    keys.push_back(
        {name, [value](GgufWriter& file, const std::string& key) { file.u32(key, value); }});
  };
  number("block_count", "num_hidden_layers", 0);
  number("context_length", "max_position_embeddings", 0);
  number("embedding_length", "hidden_size", 0);
  number("feed_forward_length", "intermediate_size", 0);
  number("attention.head_count", "num_attention_heads", 0);
  number("attention.head_count_kv", "num_key_value_heads", 0);
  number("vocab_size", "vocab_size", 0);
  const auto hidden = model.config.at("hidden_size").get<std::uint32_t>();
  const auto heads = model.config.at("num_attention_heads").get<std::uint32_t>();
  number("attention.key_length", "head_dim", hidden / heads);
  number("attention.value_length", "head_dim", hidden / heads);
  number("rope.dimension_count", "head_dim", hidden / heads);
  if (model.is_gemma()) number("attention.sliding_window", "sliding_window", 0);
  for (const std::string cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (!model.config.contains(cap)) continue;
    const float value = model.config.at(cap);
    keys.push_back({cap, [value](GgufWriter& file, const std::string& key) {
                      file.key(key, 6).number<float>(value);
                    }});
  }
  keys.push_back({"attention.layer_norm_rms_epsilon", [](GgufWriter& file, const std::string& key) {
                    file.key(key, 6).number<float>(1e-5f);
                  }});
  add_rope_keys(model, keys);
  return keys;
}

std::vector<samples::GgufTensorBytes> gguf_tensors(const TinyModel& model) {
  const bool is_paired = model.type() == "llama" || model.type() == "mistral";
  std::vector<samples::GgufTensorBytes> tensors;
  for (auto [name, tensor] : model.tensors) {
    const std::string renamed = samples::gguf_name(name, model.is_gemma());
    if (is_paired && renamed.find("attn_q.") != std::string::npos) {
      samples::pair_rows(tensor, model.config.at("num_attention_heads"));
    }
    if (is_paired && renamed.find("attn_k.") != std::string::npos) {
      samples::pair_rows(tensor, model.config.at("num_key_value_heads"));
    }
    if (model.is_gemma() && renamed.ends_with("norm.weight")) {
      for (float& value : tensor.values) value += 1;
    }
    tensors.push_back({renamed, tensor.shape, 0, samples::float_bytes(tensor.values)});
  }
  return tensors;
}

// Divisors of llama3's scaling, by the text of its release: long waves are divided by the factor,
// short ones kept, those between interpolated.
std::vector<float> llama3_divisors(const nlohmann::json& scaling, double base, int dims) {
  std::vector<float> divisors;
  const double factor = scaling.at("factor");
  const double original = scaling.at("original_max_position_embeddings");
  for (int i = 0; i < dims; i += 2) {
    const double wave = 2 * M_PI * std::pow(base, static_cast<double>(i) / dims);
    double divisor = 1;
    if (wave > original) {
      divisor = factor;
    } else if (wave > original / 4) {
      const double smooth = (original / wave - 1) / (4 - 1);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

// What a GGUF file has no keys for: windows of families whose loader knows none, and patterns.
bool is_in_gguf(const TinyModel& model) {
  const bool has_window =
      model.config.contains("sliding_window") && !model.config.at("sliding_window").is_null();
  if (model.type() == "gemma3_text") return model.config.at("sliding_window_pattern") == 6;
  return !has_window || model.type() == "gemma2";
}

TEST_P(TinyModelOf, HasTheLogitsOfTransformersFromGguf) {
  if (!is_in_gguf(model())) return;
  auto tensors = gguf_tensors(model());
  if (model().config.contains("rope_scaling") &&
      model().config.at("rope_scaling").at("rope_type") == "llama3") {
    const auto divisors =
        llama3_divisors(model().config.at("rope_scaling"), model().config.at("rope_theta"), 48 / 4);
    tensors.push_back({"rope_freqs.weight", {divisors.size()}, 0, samples::float_bytes(divisors)});
  }
  const std::map<std::string, std::string> renamed = {{"mistral", "llama"},
                                                      {"gemma3_text", "gemma3"}};
  const auto other = renamed.find(model().type());
  const std::string architecture = other == renamed.end() ? model().type() : other->second;
  const auto keys = gguf_keys(model());
  const samples::TemporaryFolder folder;
  const std::string path =
      folder.write("model.gguf", samples::gguf_of(tensors, keys.size() + 1, [&](GgufWriter& file) {
                     file.string("general.architecture", architecture);
                     for (const GgufText& key : keys)
                       key.write(file, architecture + "." + key.name);
                   }));
  expect_golden(all_logits(path, 64), model());
}

}  // namespace
}  // namespace kvarto
