#include "bench_cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "architecture_options.h"
#include "bench_words.h"
#include "kvarto/model_spec.h"
#include "numbers.h"

namespace kvarto::cli {
namespace {

// The tail of "gqa:4" as a number; `otherwise` if there is none.
Result<std::uint64_t> argument_of(const std::string& architecture, std::uint64_t otherwise) {
  const std::size_t colon = architecture.find(':');
  if (colon == std::string::npos) return otherwise;
  return parse_count(architecture.substr(colon + 1));
}

// Heads and window of the architecture; defaults are those of llama-3.1-8b.
Status set_architecture(const BenchAsked& asked, AttentionBench* bench) {
  constexpr std::uint64_t kKvHeads = 8, kHeadDim = 128, kWindow = 4096;
  const std::string name = asked.architecture_name();
  if (name == "mla") {
    bench->window = asked.window.value_or(0);
    return set_latent(asked.architecture, asked.latent,
                      {asked.q_heads, asked.kv_heads, asked.head_dim, asked.v_head_dim}, bench);
  }
  if (!asked.latent.is_empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--latent-dim, --rope-dim, --nope-dim, --form: found beside --arch {}, "
                            "expected mla",
                            asked.architecture));
  }
  const std::uint64_t q_heads = asked.q_heads.value_or(kDefaultQueryHeads);
  std::uint64_t kv_heads = asked.kv_heads.value_or(kKvHeads);
  std::uint64_t window = asked.window.value_or(0);
  if (name == "mha") {
    kv_heads = q_heads;
  } else if (name == "mqa") {
    kv_heads = 1;
  } else if (name == "gqa") {
    KVARTO_TRY(kv_heads, argument_of(asked.architecture, kv_heads));
  } else if (name == "swa") {
    KVARTO_TRY(window, argument_of(asked.architecture, asked.window.value_or(kWindow)));
  } else {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--arch: found {}, expected mha, mqa, gqa[:G], swa[:w], mla[:L+R] or "
                            "dsa[:K] here",
                            asked.architecture));
  }
  std::vector<GivenNumber> given = {{"q-heads", asked.q_heads}, {"kv-heads", asked.kv_heads}};
  // Every architecture has one here.
  if (name == "swa") given.push_back({"window", asked.window});
  KVARTO_CHECK_OK(check_stated_numbers({asked.architecture}, given));
  const std::uint64_t dim = asked.head_dim.value_or(kHeadDim);
  KVARTO_TRY(bench->q_heads, narrow("--q-heads", q_heads));
  KVARTO_TRY(bench->kv_heads, narrow("--kv-heads", kv_heads));
  KVARTO_TRY(bench->qk_dim, narrow("--head-dim", dim));
  KVARTO_TRY(bench->v_dim, narrow("--v-head-dim", asked.v_head_dim.value_or(dim)));
  bench->window = window;
  return {};
}

Status set_words(const BenchAsked& asked, AttentionBench* bench) {
  KVARTO_TRY(bench->arith, parse_arith(asked.arithmetic));
  KVARTO_TRY(bench->query_bits, narrow("--query-bits", asked.query_bits.value_or(16)));
  KVARTO_TRY(bench->content, parse_content(asked.content));
  if (asked.baseline == "repeat") {
    bench->baseline = BenchBaseline::kRepeat;
  } else if (asked.baseline != "none") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--baseline: found {}, expected none or repeat", asked.baseline));
  }
  KVARTO_TRY(bench->seconds, parse_seconds(asked.seconds));
  return {};
}

Result<Codec> type_of(std::string_view option, const std::string& word) {
  if (word == "auto") return AttentionBench{}.k_codec;
  if (word == "fp8") return Codec::kFp8E4M3;
  std::vector<std::string_view> names = cache_type_names();
  std::erase(names, "fp8_ds_mla");  // a row of latents, not of K and V
  const auto codec = codec_from_name(word);
  if (!codec.has_value() || std::find(names.begin(), names.end(), word) == names.end()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: found {}, expected a cache type: {}",
                                                         option, word, fmt::join(names, " ")));
  }
  return *codec;
}

Status set_type(const std::string& word, AttentionBench& bench) {
  if (bench.latent.has_value()) {
    if (word == "fp8_ds_mla") {
      set_latent_type(word, std::nullopt, bench);
    } else {
      KVARTO_TRY(const Codec codec, type_of("--kv-dtype", word));
      set_latent_type(word, codec, bench);
    }
    return {};
  }
  KVARTO_TRY(bench.k_codec, type_of("--kv-dtype", word));
  bench.v_codec = bench.k_codec;
  return {};
}

Status set_key_type(const std::string& word, AttentionBench& bench) {
  KVARTO_TRY(bench.k_codec, type_of("--cache-type-k", word));
  return {};
}

Status set_value_type(const std::string& word, AttentionBench& bench) {
  KVARTO_TRY(bench.v_codec, type_of("--cache-type-v", word));
  return {};
}

Status set_length(const std::string& word, AttentionBench& bench) {
  KVARTO_TRY(bench.kv_len, parse_count(word));
  return {};
}

Status set_layout(const std::string& word, AttentionBench& bench) {
  KVARTO_TRY(bench.layout, parse_layout(word));
  return {};
}

Status set_block_size(const std::string& word, AttentionBench& bench) {
  KVARTO_TRY(bench.block_size, parse_block_size(word));
  return {};
}

Status set_threads(const std::string& word, AttentionBench& bench) {
  KVARTO_TRY(bench.num_threads, parse_threads(word));
  return {};
}

// Options that only architectures with an indexer have.
Status check_indexer_options(const BenchAsked& asked) {
  const std::pair<std::string_view, bool> options[] = {
      {"--top-k", asked.top_k.has_value()},
      {"--index-heads", asked.index_heads.has_value()},
      {"--index-dim", asked.index_dim.has_value()},
      {"--index-type", !asked.index_types.empty()}};
  for (const auto& [option, is_given] : options) {
    if (!is_given) continue;
    return refuse_option(option,
                         fmt::format("bench {} of {} has none", asked.what, asked.architecture));
  }
  return {};
}

}  // namespace

Result<std::vector<AttentionBench>> attention_cases(const BenchAsked& asked) {
  KVARTO_CHECK_OK(check_indexer_options(asked));
  AttentionBench base;
  KVARTO_CHECK_OK(set_architecture(asked, &base));
  KVARTO_CHECK_OK(set_words(asked, &base));
  KVARTO_TRY(base.batch, narrow("--batch", asked.batch.value_or(1)));
  std::vector<AttentionBench> benches = {base};
  KVARTO_CHECK_OK(multiply(benches, asked.types, set_type));
  KVARTO_CHECK_OK(multiply(benches, asked.key_types, set_key_type));
  KVARTO_CHECK_OK(multiply(benches, asked.value_types, set_value_type));
  KVARTO_CHECK_OK(multiply(benches, asked.lengths, set_length));
  KVARTO_CHECK_OK(multiply(benches, asked.layouts, set_layout));
  KVARTO_CHECK_OK(multiply(benches, asked.block_sizes, set_block_size));
  KVARTO_CHECK_OK(multiply(benches, asked.threads, set_threads));
  for (AttentionBench& bench : benches) bench.q_len = asked.q_len.value_or(bench.kv_len);
  return benches;
}

std::string type_words(const AttentionBench& bench) {
  if (bench.latent.has_value()) return latent_type_word(bench);
  const std::string_view k = codec_info(bench.k_codec).name;
  const std::string_view v = codec_info(bench.v_codec).name;
  return k == v ? std::string(k) : fmt::format("{}/{}", k, v);
}

}  // namespace kvarto::cli
