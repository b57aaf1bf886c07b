// The options of kvarto bench for rows that are K and V at once (--arch mla).

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kvarto/measure.h"
#include "kvarto/result.h"

namespace kvarto::cli {

struct LatentAsked {
  std::optional<std::uint64_t> latent_dim, rope_dim, nope_dim;
  std::string form;  // "": rows alone in a decode, auto in a prefill
  [[nodiscard]] bool is_empty() const {
    return !latent_dim && !rope_dim && !nope_dim && form.empty();
  }
};

// What other options say of the shape.
struct LatentHeads {
  std::optional<std::uint64_t> q_heads, kv_heads, head_dim, v_head_dim;
};

// Sets `bench` to latent rows: `architecture` is mla or mla:L+R; defaults are those of DeepSeek-V3,
// 128 heads of 512 + 64. Errors: kInvalidArgument for options that contradict each other.
[[nodiscard]] Status set_latent(const std::string& architecture, const LatentAsked& asked,
                                const LatentHeads& heads, AttentionBench* bench);

// Sets the type of latent rows; fp8_ds_mla is that of the 656-byte row. `codec` is that of any
// other word.
void set_latent_type(const std::string& word, std::optional<Codec> codec, AttentionBench& bench);

// The word of the type.
[[nodiscard]] std::string latent_type_word(const AttentionBench& bench);

}  // namespace kvarto::cli
