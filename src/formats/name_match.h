// Finds a name among the names of a catalogue, and words the error when there is not exactly one.

#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "kvarto/result.h"

namespace kvarto {

// Candidates that an error lists at most.
inline constexpr std::size_t kMaxListedNames = 12;

// The index of the name that equals `query`, or else of the only one that begins with it; letter
// case does not matter.
//   kind   what is looked for, in messages: "model"
//   names  in lower case
// Errors: kNotFound, listing candidates, closest first: the names that begin with `query`, or, if
// none does, the names that resemble it most.
[[nodiscard]] Result<std::size_t> match_name(std::string_view query, std::string_view kind,
                                             std::span<const std::string_view> names);

}  // namespace kvarto
