// Numbers and short words as users type them and as they read them.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvarto/attention.h"
#include "kvarto/layout.h"
#include "kvarto/result.h"

namespace kvarto::cli {

// Whole decimal digits. Errors: kInvalidArgument.
[[nodiscard]] Result<std::uint64_t> parse_count(std::string_view text);
// A number, whole or with a fraction, and one of B, kB, KB, KiB, MB, MiB, GB, GiB, TB, TiB, PB,
// PiB in any case; a bare K, M, G, T or P is binary, as in the engines' flags.
[[nodiscard]] Result<std::uint64_t> parse_size(std::string_view text);
[[nodiscard]] Result<double> parse_real(std::string_view text);
// What --arith says. Errors: kInvalidArgument.
[[nodiscard]] Result<Arith> parse_arith(std::string_view text);
// What --layout says. Errors: kInvalidArgument.
[[nodiscard]] Result<Layout> parse_layout(std::string_view text);
// The value of an option, which must fit 32 bits. Errors: kInvalidArgument.
[[nodiscard]] Result<std::uint32_t> narrow(std::string_view option, std::uint64_t value);
// Sets `target` where something was given.
[[nodiscard]] Status narrow(std::string_view option, std::optional<std::uint64_t> given,
                            std::uint32_t* target);

[[nodiscard]] std::string grouped(std::uint64_t number);     // "4,294,967,296"
[[nodiscard]] std::string short_bytes(std::uint64_t bytes);  // "4.00 GiB", "12.50 MiB", "656 B"
[[nodiscard]] std::string exact_bytes(std::uint64_t bytes);  // "4.00 GiB (4,294,967,296 B)"
[[nodiscard]] std::string grouped_real(double number);       // "131,072", "3,712.25"; not below 0
[[nodiscard]] std::string short_real(double number);         // at most three decimals, no zeros
[[nodiscard]] std::string short_seconds(double seconds);     // "1.28 ms"
[[nodiscard]] std::string short_flop(double flop);           // "1.42 TFLOP"

}  // namespace kvarto::cli
