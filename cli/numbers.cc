#include "numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

namespace kvarto::cli {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;
constexpr std::uint64_t kPiB = std::uint64_t{1} << 50;

struct Unit {
  std::string_view name;  // lower case
  double factor;
};
constexpr std::array<Unit, 17> kUnits{{{"", 1},
                                       {"b", 1},
                                       {"k", 0x1p10},
                                       {"kb", 1e3},
                                       {"kib", 0x1p10},
                                       {"m", 0x1p20},
                                       {"mb", 1e6},
                                       {"mib", 0x1p20},
                                       {"g", 0x1p30},
                                       {"gb", 1e9},
                                       {"gib", 0x1p30},
                                       {"t", 0x1p40},
                                       {"tb", 1e12},
                                       {"tib", 0x1p40},
                                       {"p", 0x1p50},
                                       {"pb", 1e15},
                                       {"pib", 0x1p50}}};

tl::unexpected<Error> not_a_size(std::string_view text) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("found \"{}\", expected a size like 24GiB, 24GB, 512MiB or bytes", text));
}

// A value scaled to the largest unit whose figure is at least 1.
std::string scaled(double value, const std::array<std::string_view, 5>& units) {
  std::size_t unit = 0;
  while (value >= 1000.0 && unit + 1 < units.size()) {
    value /= 1000.0;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, units[unit]);
}

}  // namespace

Result<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("found \"{}\", expected a whole number", text));
  }
  return number;
}

Result<double> parse_real(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(number)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("found \"{}\", expected a number", text));
  }
  return number;
}

Result<std::uint64_t> parse_size(std::string_view text) {
  const auto* digits_end = std::find_if(text.begin(), text.end(),
                                        [](char c) { return (c < '0' || c > '9') && c != '.'; });
  const std::string_view figure(text.data(), static_cast<std::size_t>(digits_end - text.begin()));
  std::string_view rest = text.substr(figure.size());
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  std::string unit(rest);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto* found = std::find_if(kUnits.begin(), kUnits.end(),
                                   [&](const Unit& candidate) { return candidate.name == unit; });
  if (figure.empty() || found == kUnits.end()) return not_a_size(text);
  // Whole bytes stay exact beyond the 53 bits of a double.
  if (found->factor == 1) {
    const auto bytes = parse_count(figure);
    if (bytes.has_value()) return *bytes;
  }
  const auto number = parse_real(figure);
  if (!number.has_value()) return not_a_size(text);
  const double bytes = std::floor(*number * found->factor);
  if (bytes >= 0x1p63) return not_a_size(text);
  return static_cast<std::uint64_t>(bytes);
}

std::string grouped(std::uint64_t number) {
  std::string digits = fmt::format("{}", number);
  for (std::size_t end = digits.size(); end > 3; end -= 3) digits.insert(end - 3, ",");
  return digits;
}

std::string short_bytes(std::uint64_t bytes) {
  if (bytes >= kPiB) return fmt::format("{:.2f} PiB", static_cast<double>(bytes) / 0x1p50);
  if (bytes >= kTiB) return fmt::format("{:.2f} TiB", static_cast<double>(bytes) / 0x1p40);
  if (bytes >= kGiB) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / 0x1p30);
  if (bytes >= kMiB) return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / 0x1p20);
  return grouped(bytes) + " B";
}

std::string exact_bytes(std::uint64_t bytes) {
  if (bytes < kMiB) return short_bytes(bytes);
  return fmt::format("{} ({} B)", short_bytes(bytes), grouped(bytes));
}

Result<Arith> parse_arith(std::string_view text) {
  const std::optional<Arith> arith = arith_from_name(text);
  if (arith.has_value()) return *arith;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--arith: found {}, expected auto, f32, f16 or int8", text));
}

Result<Layout> parse_layout(std::string_view text) {
  for (const Layout layout : {Layout::kGeneric, Layout::kHardware}) {
    if (layout_name(layout) == text) return layout;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--layout: found {}, expected generic or hardware", text));
}

Result<std::uint32_t> narrow(std::string_view option, std::uint64_t value) {
  if (value <= std::numeric_limits<std::uint32_t>::max()) return static_cast<std::uint32_t>(value);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: found {}, expected at most 4294967295", option, value));
}

Status narrow(std::string_view option, std::optional<std::uint64_t> given, std::uint32_t* target) {
  if (!given.has_value()) return {};
  KVARTO_TRY(*target, narrow(option, *given));
  return {};
}

std::string short_real(double number) {
  std::string text = fmt::format("{:.3f}", number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string grouped_real(double number) {
  const std::string text = short_real(number);
  const std::size_t point = std::min(text.find('.'), text.size());
  const Result<std::uint64_t> whole = parse_count(std::string_view(text).substr(0, point));
  return whole.has_value() ? grouped(*whole) + text.substr(point) : text;
}

std::string short_seconds(double seconds) {
  if (seconds >= 1.0) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} us", seconds * 1e6);
}

std::string short_flop(double flop) {
  return scaled(flop / 1e6, {"MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"});
}

}  // namespace kvarto::cli
