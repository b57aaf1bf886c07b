// How a call of this library reports failure: a value or an Error, never an exception.

#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace kvarto {

enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  // the caller asked for something that cannot be
  kNotFound,         // a file, model or device that does not exist
  kIo,               // the system could not read or write
  kCorruptData,      // outside data breaks its format
  kUnsupported,      // valid, but not implemented here
  kOutOfMemory,      // storage could not be allocated
};

// What went wrong. The message names what, where, the value found and what was expected;
// lower case, no full stop. Immutable.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;

using Status = Result<void>;

// Builds the error side of a Result.
[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace kvarto

// Evaluates `expression` (a Result); on failure returns its error from the enclosing function,
// otherwise declares `declaration` with the value: KVARTO_TRY(auto spec, read(path));
#define KVARTO_CONCAT_INNER(a, b) a##b
#define KVARTO_CONCAT(a, b) KVARTO_CONCAT_INNER(a, b)
#define KVARTO_TRY_INNER(result, declaration, ...)                                            \
  auto result = (__VA_ARGS__);                                                                \
  if (!result.has_value()) return tl::unexpected<::kvarto::Error>(std::move(result).error()); \
  declaration = std::move(result).value()
#define KVARTO_TRY(declaration, ...) \
  KVARTO_TRY_INNER(KVARTO_CONCAT(kvarto_result_, __LINE__), declaration, __VA_ARGS__)
#define KVARTO_CHECK_OK(...)                                                    \
  do {                                                                          \
    if (auto kvarto_status = (__VA_ARGS__); !kvarto_status.has_value())         \
      return tl::unexpected<::kvarto::Error>(std::move(kvarto_status).error()); \
  } while (false)
