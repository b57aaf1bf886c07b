// Any bytes as a config.json: a model whose streams can be summed, or an error.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kvarto/model_file.h"
#include "spec/keys.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto model = kvarto::read_config_json(text, "fuzz");
  if (!model) {
    if (model.error().message.empty() || model.error().message.size() > 1000) std::abort();
    return 0;
  }
  std::size_t num_layers = 0;
  for (const kvarto::LayerGroup& group : model->groups) {
    num_layers += group.layers.size();
    for (const kvarto::Stream& stream : group.streams) {
      if (stream.tokens_per_row == 0 || stream.name.empty() || stream.fields.empty()) std::abort();
      if (stream.owner_layer && *stream.owner_layer >= model->num_layers) std::abort();
      (void)kvarto::row_bytes(stream);
      (void)kvarto::peak_rows(stream, kvarto::kMaxTokens);
      (void)kvarto::rows_read(stream, kvarto::kMaxTokens);
    }
  }
  if (num_layers != model->num_layers) std::abort();
  return 0;
}
