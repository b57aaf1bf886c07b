#include "bench_latent.h"

#include <fmt/format.h>

#include <limits>

#include "architecture_options.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

constexpr std::uint64_t kHeads = 128;
constexpr std::uint64_t kLatentDim = 512;
constexpr std::uint64_t kRopeDim = 64;
constexpr std::uint64_t kNopeDim = 128;
constexpr std::uint64_t kValueDim = 128;
constexpr std::string_view kPackedRow = "fp8_ds_mla";

Status invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

// The numbers of "mla:512+64"; those that it leaves out stay unset.
struct Widths {
  std::optional<std::uint64_t> latent, rope;
};
Result<Widths> widths_of(const std::string& architecture) {
  const std::size_t colon = architecture.find(':');
  if (colon == std::string::npos) return Widths{};
  const std::string numbers = architecture.substr(colon + 1);
  const std::size_t plus = numbers.find('+');
  if (plus == std::string::npos) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--arch: found {}, expected mla or mla:L+R, as in mla:512+64", architecture));
  }
  Widths widths;
  KVARTO_TRY(widths.latent, parse_count(numbers.substr(0, plus)));
  KVARTO_TRY(widths.rope, parse_count(numbers.substr(plus + 1)));
  return widths;
}

}  // namespace

Status set_latent(const std::string& architecture, const LatentAsked& asked,
                  const LatentHeads& heads, AttentionBench* bench) {
  if (heads.head_dim.has_value()) {
    return refuse_latent_head_dim(architecture);
  }
  KVARTO_TRY(const Widths named, widths_of(architecture));
  KVARTO_CHECK_OK(check_stated_numbers({architecture}, {{"kv-heads", heads.kv_heads},
                                                        {"latent-dim", asked.latent_dim},
                                                        {"rope-dim", asked.rope_dim}}));
  KVARTO_TRY(const std::uint32_t latent,
             narrow("--latent-dim", asked.latent_dim.value_or(named.latent.value_or(kLatentDim))));
  KVARTO_TRY(const std::uint32_t rope,
             narrow("--rope-dim", asked.rope_dim.value_or(named.rope.value_or(kRopeDim))));
  LatentBench shape;
  KVARTO_TRY(shape.nope_dim, narrow("--nope-dim", asked.nope_dim.value_or(kNopeDim)));
  KVARTO_TRY(shape.v_dim, narrow("--v-head-dim", heads.v_head_dim.value_or(kValueDim)));
  if (!asked.form.empty()) {
    shape.form = latent_form_from_name(asked.form);
    if (!shape.form.has_value()) {
      return invalid(fmt::format("--form: found {}, expected auto, naive or absorbed", asked.form));
    }
  }
  KVARTO_TRY(bench->q_heads, narrow("--q-heads", heads.q_heads.value_or(kHeads)));
  bench->kv_heads = 1;
  bench->v_dim = latent;
  if (rope > std::numeric_limits<std::uint32_t>::max() - latent) {
    return invalid(fmt::format("--rope-dim: found {}, expected less", rope));
  }
  bench->qk_dim = latent + rope;
  bench->latent = shape;
  return {};
}

void set_latent_type(const std::string& word, std::optional<Codec> codec, AttentionBench& bench) {
  const bool is_packed = word == kPackedRow;
  bench.k_codec = is_packed ? Codec::kFp8Scaled128 : *codec;
  bench.v_codec = bench.k_codec;
  bench.latent->tail_codec = is_packed ? Codec::kBF16 : *codec;
}

std::string latent_type_word(const AttentionBench& bench) {
  return std::string(bench.k_codec == Codec::kFp8Scaled128 ? kPackedRow
                                                           : codec_info(bench.k_codec).name);
}

}  // namespace kvarto::cli
