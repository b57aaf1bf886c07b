// The built-in catalogue: models by name, and devices, each with its source.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/hardware_spec.h"
#include "kvarto/model_spec.h"
#include "kvarto/result.h"

namespace kvarto {

struct CatalogueModel {
  std::string name;  // the repository's name in lower case, e.g. "llama-3.1-8b"
  std::string model_type;
  std::string source;  // where the geometry was read
};

// All models, sorted by name.
[[nodiscard]] std::span<const CatalogueModel> catalogue_models();

// The model called `name`, or the only one whose name begins with it. Errors: kNotFound with the
// candidates, if there are none or several.
[[nodiscard]] Result<ModelSpec> catalogue_model(std::string_view name);

// All devices, by ascending memory.
[[nodiscard]] std::span<const HardwareSpec> catalogue_devices();
[[nodiscard]] Result<HardwareSpec> catalogue_device(std::string_view name);

}  // namespace kvarto
