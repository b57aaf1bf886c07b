// What the options of kvarto bench say, as typed. Each kind of measurement takes from it what it
// has, and refuses the rest.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench_latent.h"

namespace kvarto::cli {

struct BenchAsked {
  std::string what;
  std::string architecture = "gqa";
  std::optional<std::uint64_t> q_heads, kv_heads, head_dim, v_head_dim, window;
  std::optional<std::uint64_t> top_k, index_heads, index_dim;
  std::vector<std::string> types, key_types, value_types, index_types;
  std::vector<std::string> lengths, layouts, block_sizes, threads;
  std::optional<std::uint64_t> q_len, batch, query_bits;
  LatentAsked latent;
  std::string arithmetic = "auto";
  std::string content = "normal";
  std::string baseline = "none";
  std::string seconds = "1";
  bool is_json = false;

  // The word of the architecture without its numbers.
  [[nodiscard]] std::string architecture_name() const {
    return architecture.substr(0, architecture.find(':'));
  }
};

}  // namespace kvarto::cli
