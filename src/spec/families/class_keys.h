// Keys to which a family's config class gives defaults, and what all families read alike.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/model_spec.h"
#include "spec/keys.h"

namespace kvarto {

// The model type that decides the family: that of the language model's map, else the file's.
// "" if neither states one.
[[nodiscard]] std::string effective_model_type(const Keys& keys, const Keys& root);

// Reads keys that may be absent because their config class has a default, and collects a note for
// every default taken: "num_attention_heads: absent, took 8, the default of Gemma3TextConfig".
// Not thread-safe; lives for one read.
class ClassKeys {
 public:
  // `config_class` "" = there is no class with defaults: every key is required.
  ClassKeys(Keys keys, std::string_view config_class)
      : keys_(std::move(keys)), config_class_(config_class) {}

  [[nodiscard]] const Keys& keys() const { return keys_; }

  // An integer in [1, max] under the first present name. Absent: `class_default`, noted under the
  // first name; 0 = the class has none, the key is required. Null is an error.
  [[nodiscard]] Result<std::int64_t> count(std::initializer_list<std::string_view> names,
                                           std::int64_t class_default, std::int64_t max);
  // The same for a key whose absence needs neither default nor note: 0 if absent.
  [[nodiscard]] Result<std::int64_t> optional_count(std::initializer_list<std::string_view> names,
                                                    std::int64_t max) const;
  void note(std::string text) { notes_.push_back(std::move(text)); }
  // A note that `key` is absent and `value` was taken.
  void note_default(std::string_view key, std::string_view value);

  // Fills model type, layers, context, hidden size and vocabulary; moves the notes out.
  struct Frame {
    std::int64_t num_layers = 0;
    std::int64_t hidden_size = 0;  // 0 = not stated
    std::int64_t max_context = 0;  // 0 = not stated
  };
  [[nodiscard]] Result<ModelSpec> model(const Frame& frame, const std::vector<LayerSpec>& layers,
                                        const std::vector<LayerSpec>& drafts, const Keys& root);

 private:
  Keys keys_;
  std::string config_class_;
  std::vector<std::string> notes_;
};

}  // namespace kvarto
