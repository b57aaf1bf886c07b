#include "formats/gguf_tensor_type.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kvarto {
namespace {

// Sources: enum ggml_type of ggml.h, 2026; from 133 on that of ik_llama.cpp.
constexpr std::array kTypes = {
    std::pair{0u, TensorType::kF32},     std::pair{1u, TensorType::kF16},
    std::pair{2u, TensorType::kQ4_0},    std::pair{3u, TensorType::kQ4_1},
    std::pair{6u, TensorType::kQ5_0},    std::pair{7u, TensorType::kQ5_1},
    std::pair{8u, TensorType::kQ8_0},    std::pair{9u, TensorType::kQ8_1},
    std::pair{10u, TensorType::kQ2K},    std::pair{11u, TensorType::kQ3K},
    std::pair{12u, TensorType::kQ4K},    std::pair{13u, TensorType::kQ5K},
    std::pair{14u, TensorType::kQ6K},    std::pair{15u, TensorType::kQ8K},
    std::pair{16u, TensorType::kIq2Xxs}, std::pair{17u, TensorType::kIq2Xs},
    std::pair{18u, TensorType::kIq3Xxs}, std::pair{19u, TensorType::kIq1S},
    std::pair{20u, TensorType::kIq4Nl},  std::pair{21u, TensorType::kIq3S},
    std::pair{22u, TensorType::kIq2S},   std::pair{23u, TensorType::kIq4Xs},
    std::pair{24u, TensorType::kI8},     std::pair{25u, TensorType::kI16},
    std::pair{26u, TensorType::kI32},    std::pair{27u, TensorType::kI64},
    std::pair{28u, TensorType::kF64},    std::pair{29u, TensorType::kIq1M},
    std::pair{30u, TensorType::kBF16},   std::pair{34u, TensorType::kTq1_0},
    std::pair{35u, TensorType::kTq2_0},  std::pair{39u, TensorType::kMxfp4},
    std::pair{40u, TensorType::kNvfp4},  std::pair{41u, TensorType::kQ1_0},
    std::pair{42u, TensorType::kQ2_0},   std::pair{133u, TensorType::kQ6_0},
    std::pair{134u, TensorType::kIq1Bn}, std::pair{135u, TensorType::kIq2Bn},
    std::pair{137u, TensorType::kIq2K},  std::pair{138u, TensorType::kIq3K},
    std::pair{139u, TensorType::kIq4K},  std::pair{140u, TensorType::kIq5K},
    std::pair{141u, TensorType::kIq6K},  std::pair{144u, TensorType::kIq4Ks},
    std::pair{145u, TensorType::kIq2Ks}, std::pair{146u, TensorType::kIq4Kss},
    std::pair{151u, TensorType::kQ8Kv},  std::pair{152u, TensorType::kIq5Ks},
    std::pair{153u, TensorType::kIq2Kt}, std::pair{154u, TensorType::kIq3Kt},
    std::pair{155u, TensorType::kIq4Kt}, std::pair{156u, TensorType::kIq3Ks},
    std::pair{157u, TensorType::kIq2Kl}, std::pair{158u, TensorType::kIq1Kt},
};

constexpr std::array kRemoved = {
    std::pair<std::uint32_t, std::string_view>{4, "Q4_2"},
    std::pair<std::uint32_t, std::string_view>{5, "Q4_3"},
    std::pair<std::uint32_t, std::string_view>{31, "Q4_0_4_4"},
    std::pair<std::uint32_t, std::string_view>{32, "Q4_0_4_8"},
    std::pair<std::uint32_t, std::string_view>{33, "Q4_0_8_8"},
    std::pair<std::uint32_t, std::string_view>{36, "IQ4_NL_4_4"},
    std::pair<std::uint32_t, std::string_view>{37, "IQ4_NL_4_8"},
    std::pair<std::uint32_t, std::string_view>{38, "IQ4_NL_8_8"},
};

template <typename Table>
auto find_in(const Table& table, std::uint32_t id)
    -> std::optional<typename Table::value_type::second_type> {
  const auto row =
      std::find_if(table.begin(), table.end(), [&](const auto& r) { return r.first == id; });
  if (row == table.end()) return std::nullopt;
  return row->second;
}

}  // namespace

std::optional<TensorType> gguf_tensor_type(std::uint32_t id) { return find_in(kTypes, id); }

std::optional<std::string_view> gguf_removed_type(std::uint32_t id) {
  return find_in(kRemoved, id);
}

}  // namespace kvarto
