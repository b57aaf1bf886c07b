// The numbers of an architecture as options beside its word: --window 9 beside swa:4 contradicts
// itself. One check for every command that takes both.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvarto/result.h"

namespace kvarto::cli {

// Query heads where nothing says otherwise: llama-3.1-8b's.
inline constexpr std::uint64_t kDefaultQueryHeads = 32;

// An option of a number, without its dashes, and what it says.
struct GivenNumber {
  std::string_view name;
  std::optional<double> value;
};

// Refuses a number that a word states with another value, unless another word leaves it open.
// Errors: kInvalidArgument, naming the option, both values and the word; those of open_numbers().
[[nodiscard]] Status check_stated_numbers(const std::vector<std::string>& words,
                                          const std::vector<GivenNumber>& numbers);

// The error of --head-dim beside an architecture whose rows are latents.
[[nodiscard]] tl::unexpected<Error> refuse_latent_head_dim(std::string_view architecture);

// Refuses a number that no word leaves open: `changes nothing`. For models, which have numbers of
// their own. Errors: as check_stated_numbers().
[[nodiscard]] Status check_open_numbers(const std::vector<std::string>& words,
                                        const std::vector<GivenNumber>& numbers);

}  // namespace kvarto::cli
