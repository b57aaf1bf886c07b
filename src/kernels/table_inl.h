// Fills the kernel table of one instruction set.

#pragma once

namespace kvarto::KVARTO_ISA {

template <Element E>
inline void fill_element(KernelTable& table) {
  constexpr int e = static_cast<int>(E);
  table.score_tiles[e][0] = score_tiles<E, 1>;
  table.score_tiles[e][1] = score_tiles<E, 2>;
  table.score_tiles[e][2] = score_tiles<E, 4>;
  table.score_tiles[e][3] = score_tiles<E, 8>;
  table.score_rows[e][0] = score_rows<E, 1>;
  table.score_rows[e][1] = score_rows<E, 2>;
  table.score_rows[e][2] = score_rows<E, 4>;
  table.score_rows[e][3] = score_rows<E, 8>;
  table.accumulate[e][0] = accumulate<E, 1>;
  table.accumulate[e][1] = accumulate<E, 2>;
  table.accumulate[e][2] = accumulate<E, 4>;
  table.accumulate[e][3] = accumulate<E, 8>;
  table.to_f32[e] = to_f32<E>;
  table.from_f32[e] = from_f32<E>;
  table.from_f32_tile[e] = from_f32_tile<E>;
}

inline KernelTable make_table(Isa isa, const char* name) {
  KernelTable table;
  table.isa = isa;
  table.name = name;
  fill_element<Element::kF32>(table);
  fill_element<Element::kF16>(table);
  fill_element<Element::kBF16>(table);
  table.softmax = softmax;
  table.combine = combine;
  table.pack_query_tile = pack_query_tile;
  table.pack_query_rows = pack_query_rows;
  table.transpose = transpose_tile;
  table.wide = &kWideKernels;
  table.codes = make_code_kernels(name);
  table.index = make_index_kernels(name);
  table.read_stream = read_stream;
  table.fma_loop = fma_loop;
  table.fma_loop_flop = 2ull * kLanes * kFmaChains;
  return table;
}

}  // namespace kvarto::KVARTO_ISA
