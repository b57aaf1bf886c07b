// kvarto models: the built-in catalogue.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "kvarto/catalogue.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Asked {
  std::string word;
  bool is_devices = false;
  bool is_json = false;
};

Error nothing_found(const Asked& asked) {
  return {ErrorCode::kNotFound, fmt::format("no {} of the catalogue contains \"{}\"",
                                            asked.is_devices ? "device" : "model", asked.word)};
}

std::vector<CatalogueModel> chosen_models(const std::string& word) {
  std::vector<CatalogueModel> chosen;
  for (const CatalogueModel& model : catalogue_models()) {
    const bool is_chosen = model.name.find(word) != std::string::npos ||
                           model.model_type.find(word) != std::string::npos;
    if (is_chosen) chosen.push_back(model);
  }
  return chosen;
}

std::vector<HardwareSpec> chosen_devices(const std::string& word) {
  std::vector<HardwareSpec> chosen;
  for (const HardwareSpec& device : catalogue_devices()) {
    if (device.name.find(word) != std::string::npos) chosen.push_back(device);
  }
  return chosen;
}

void print_json(const Json& json, Output& out) {
  out.verbatim(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_models(const std::vector<CatalogueModel>& models, const Asked& asked, Output& out) {
  if (asked.is_json) {
    Json list = Json::array();
    for (const CatalogueModel& model : models) {
      list.push_back(
          {{"name", model.name}, {"model_type", model.model_type}, {"source", model.source}});
    }
    return print_json({{"schema", "kvarto.models/1"}, {"models", list}}, out);
  }
  Table table({{"model", Table::Align::kLeft},
               {"type", Table::Align::kLeft},
               {"source", Table::Align::kLeft}});
  for (const CatalogueModel& model : models) {
    table.row({model.name, model.model_type, model.source});
  }
  table.print(out, "");
}

void print_devices(const std::vector<HardwareSpec>& devices, const Asked& asked, Output& out) {
  if (asked.is_json) {
    Json list = Json::array();
    for (const HardwareSpec& device : devices) {
      list.push_back({{"name", device.name},
                      {"memory_bytes", device.memory_bytes},
                      {"bandwidth_bytes_per_s", device.bandwidth_bytes_per_s},
                      {"flop_per_s_16bit", device.flop_per_s_16bit},
                      {"flop_per_s_8bit", device.flop_per_s_8bit},
                      {"source", device.source}});
    }
    return print_json({{"schema", "kvarto.devices/1"}, {"devices", list}}, out);
  }
  Table table({{"device", Table::Align::kLeft},
               {"memory"},
               {"GB/s"},
               {"TFLOP/s 16-bit"},
               {"8-bit"},
               {"source", Table::Align::kLeft}});
  const auto teraflops = [](double flop_per_s) {
    return flop_per_s > 0 ? short_real(flop_per_s / 1e12) : std::string("-");
  };
  for (const HardwareSpec& device : devices) {
    table.row({device.name, short_bytes(device.memory_bytes),
               short_real(device.bandwidth_bytes_per_s / 1e9), teraflops(device.flop_per_s_16bit),
               teraflops(device.flop_per_s_8bit), device.source});
  }
  table.print(out, "");
}

Result<ExitCode> run(const Asked& asked, Output& out) {
  if (asked.is_devices) {
    const std::vector<HardwareSpec> devices = chosen_devices(asked.word);
    if (devices.empty()) return tl::unexpected<Error>(nothing_found(asked));
    print_devices(devices, asked, out);
  } else {
    const std::vector<CatalogueModel> models = chosen_models(asked.word);
    if (models.empty()) return tl::unexpected<Error>(nothing_found(asked));
    print_models(models, asked, out);
  }
  return ExitCode::kDone;
}

Runner declare(OptionSet& options) {
  auto asked = std::make_shared<Asked>();
  options.positional("WORD", &asked->word, "only names or types that contain it");
  options.section("options");
  options.flag("--devices", &asked->is_devices, "devices instead of models");
  options.flag("--json", &asked->is_json, "one JSON document on standard output");
  return [asked](Output& out) { return run(*asked, out); };
}

}  // namespace

const Command kModelsCommand{"models", "[WORD] [options]", "list the built-in catalogue", declare};

}  // namespace kvarto::cli
