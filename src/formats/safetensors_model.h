// A model whose weights are safetensors: its description is the config.json beside them.

#pragma once

#include <string>

#include "kvarto/model_spec.h"

namespace kvarto {

// Opens a `.safetensors` or an index of shards: reads the config.json in its folder, checks the
// tensors' shapes against it, and adds the bytes of the weights. A single shard of several stands
// for all of them where their index lies beside it.
// Errors: kNotFound names a missing config.json or shard; kCorruptData for tensors that contradict
// the configuration, with both numbers.
[[nodiscard]] Result<ModelSpec> open_safetensors_model(const std::string& path);

// The same for a folder whose config.json has been read as `spec`: weights are looked for, and a
// folder without them (or without some shard, which is noted) is as good.
[[nodiscard]] Result<ModelSpec> with_folder_weights(ModelSpec spec, const std::string& folder);

}  // namespace kvarto
