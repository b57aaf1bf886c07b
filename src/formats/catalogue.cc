#include "kvarto/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "formats/json_value.h"
#include "formats/name_match.h"
#include "spec/families.h"
#include "spec/keys.h"

// catalogue/models.json and catalogue/devices.json, embedded by cmake/embed.cmake.
namespace kvarto::embedded {
extern const char catalogue_models[];
extern const unsigned long catalogue_models_bytes;
extern const char catalogue_devices[];
extern const unsigned long catalogue_devices_bytes;
}  // namespace kvarto::embedded

namespace kvarto {
namespace {

// One model a line, in the form {"name":"...","source":"...","config":{...}}, sorted by name. The
// lines are cut apart without parsing them: a look-up parses the one configuration that it needs,
// not all of them. unit/catalogue_test.cc holds the file to this form.
struct ModelLine {
  std::string_view name;
  std::string_view source;
  std::string_view model_type;
  std::string_view config;
};

// What lies between `begin` and the next `end`; empty if either is missing.
std::string_view between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t from = text.find(begin);
  if (from == std::string_view::npos) return {};
  text.remove_prefix(from + begin.size());
  return text.substr(0, text.find(end));
}

std::vector<ModelLine> read_model_lines() {
  std::string_view text(embedded::catalogue_models, embedded::catalogue_models_bytes);
  std::vector<ModelLine> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ModelLine model;
    model.name = between(line, "{\"name\":\"", "\"");
    if (model.name.empty()) continue;  // the brackets of the list
    model.source = between(line, "\"source\":\"", "\"");
    model.model_type = between(line, "\"model_type\":\"", "\"");
    constexpr std::string_view kConfigKey = "\"config\":";
    const std::size_t begin = line.find(kConfigKey) + kConfigKey.size();
    model.config = line.substr(begin, line.rfind('}') - begin);
    lines.push_back(model);
  }
  return lines;
}

const std::vector<ModelLine>& model_lines() {
  static const std::vector<ModelLine> lines = read_model_lines();
  return lines;
}

std::vector<HardwareSpec> read_devices() {
  const std::string_view text(embedded::catalogue_devices, embedded::catalogue_devices_bytes);
  std::vector<HardwareSpec> devices;
  const auto document = parse_json(text, "catalogue/devices.json");
  if (!document) return devices;
  const Value* list = document->find("devices");
  const auto* entries = list == nullptr ? nullptr : std::get_if<ValueList>(&list->data);
  if (entries == nullptr) return devices;
  for (const Value& entry : *entries) {
    const Keys keys(entry, "catalogue/devices.json");
    HardwareSpec device;
    device.name = keys.string("name").value_or(std::nullopt).value_or("");
    device.memory_bytes = static_cast<std::uint64_t>(
        keys.integer({"memory_bytes"}, 0, kMaxTokens << 10).value_or(std::nullopt).value_or(0));
    device.bandwidth_bytes_per_s =
        keys.real("bandwidth_bytes_per_s").value_or(std::nullopt).value_or(0);
    device.flop_per_s_16bit = keys.real("flop_per_s_16bit").value_or(std::nullopt).value_or(0);
    device.flop_per_s_8bit = keys.real("flop_per_s_8bit").value_or(std::nullopt).value_or(0);
    device.source = keys.string("source").value_or(std::nullopt).value_or("");
    devices.push_back(std::move(device));
  }
  std::stable_sort(devices.begin(), devices.end(), [](const auto& a, const auto& b) {
    return std::tie(a.memory_bytes, a.bandwidth_bytes_per_s) <
           std::tie(b.memory_bytes, b.bandwidth_bytes_per_s);
  });
  return devices;
}

}  // namespace

std::span<const CatalogueModel> catalogue_models() {
  static const std::vector<CatalogueModel> models = [] {
    std::vector<CatalogueModel> list;
    for (const ModelLine& line : model_lines()) {
      list.push_back(
          {std::string(line.name), std::string(line.model_type), std::string(line.source)});
    }
    return list;
  }();
  return models;
}

Result<ModelSpec> catalogue_model(std::string_view name) {
  const std::vector<ModelLine>& lines = model_lines();
  std::vector<std::string_view> names;
  names.reserve(lines.size());
  for (const ModelLine& line : lines) names.push_back(line.name);
  KVARTO_TRY(const std::size_t index, match_name(name, "model", names));

  const ModelLine& line = lines[index];
  const std::string where = fmt::format("catalogue: {}", line.name);
  KVARTO_TRY(const Value config, parse_json(line.config, where));
  KVARTO_TRY(ModelSpec model, read_model_keys(Keys(config, where)));
  model.name = std::string(line.name);
  // Geometry that nobody re-checked is not passed off as read from the release.
  if (line.source.find("from memory") != std::string_view::npos) {
    model.notes.push_back(fmt::format("source of the catalogue's figures: {}", line.source));
  }
  return model;
}

std::span<const HardwareSpec> catalogue_devices() {
  static const std::vector<HardwareSpec> devices = read_devices();
  return devices;
}

Result<HardwareSpec> catalogue_device(std::string_view name) {
  const std::span<const HardwareSpec> devices = catalogue_devices();
  std::vector<std::string_view> names;
  names.reserve(devices.size());
  for (const HardwareSpec& device : devices) names.push_back(device.name);
  KVARTO_TRY(const std::size_t index, match_name(name, "device", names));
  return devices[index];
}

}  // namespace kvarto
