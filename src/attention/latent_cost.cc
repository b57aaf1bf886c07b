// What the two forms of latent attention cost: docs/mla.md has the formulas.

#include <array>

#include "kvarto/latent_attention.h"

namespace kvarto {
namespace {

constexpr std::array<std::string_view, 3> kFormNames = {"auto", "naive", "absorbed"};
constexpr double kF32Bytes = 4;

}  // namespace

std::string_view latent_form_name(LatentForm form) {
  return kFormNames[static_cast<std::size_t>(form)];
}

std::optional<LatentForm> latent_form_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kFormNames.size(); ++i) {
    if (kFormNames[i] == name) return static_cast<LatentForm>(i);
  }
  return std::nullopt;
}

LatentCost latent_cost(LatentForm form, const LatentWork& work) {
  const auto heads = static_cast<double>(work.num_heads);
  const auto latent = static_cast<double>(work.latent_dim);
  const auto rope = static_cast<double>(work.rope_dim);
  const auto nope = static_cast<double>(work.nope_dim);
  const auto v = static_cast<double>(work.v_dim);
  const auto rows = static_cast<double>(work.num_rows);
  const auto queries = static_cast<double>(work.num_queries);
  // Each row, or each query, goes once through both matrices of every head.
  const double product = 2 * heads * latent * (nope + v);
  LatentCost cost;
  cost.bytes = rows * static_cast<double>(work.row_bytes) + heads * latent * (nope + v) * kF32Bytes;
  if (form == LatentForm::kNaive) {
    const double head = nope + rope + v;
    cost.flop = rows * product + 2 * work.num_pairs * heads * head;
    cost.bytes += 2 * rows * heads * head * kF32Bytes;  // written and read
  } else {
    const double head = latent + rope + latent;
    cost.flop = queries * product + 2 * work.num_pairs * heads * head;
    cost.bytes += 2 * queries * heads * head * kF32Bytes;
  }
  return cost;
}

LatentForm cheaper_form(const LatentWork& work) {
  const double naive = latent_cost(LatentForm::kNaive, work).total();
  return naive < latent_cost(LatentForm::kAbsorbed, work).total() ? LatentForm::kNaive
                                                                  : LatentForm::kAbsorbed;
}

}  // namespace kvarto
