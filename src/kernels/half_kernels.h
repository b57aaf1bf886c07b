// What is known of the kernels in half precision beside their functions.

#pragma once

#include <cstdint>

namespace kvarto {

// Products that are added in 16 bits, one after the other, before their sum is added to a total.
inline constexpr std::uint32_t kHalfChainTerms = 16;
// Chains whose total is kept in 16 bits before it goes to f32.
inline constexpr std::uint32_t kHalfTotalChains = 2;
// The same where many queries share the rows (wide_half_inl.h): fewer conversions.
inline constexpr std::uint32_t kWideHalfTotalChains = 4;

// Where lanes run along the elements of rows: products of every 32nd element make one chain, and
// the chains of a row are added in so many rounds in 16 bits and a last one in f32.
inline constexpr std::uint32_t kHalfRowLanes = 32;
inline constexpr std::uint32_t kHalfRowSums = 4;

// Probabilities of a chunk are at most 2^-kHalfHeadroom, so that sums of large values stay in
// range.
inline constexpr int kHalfHeadroom = 4;

}  // namespace kvarto
