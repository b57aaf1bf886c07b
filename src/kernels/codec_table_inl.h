// Fills in the codecs of one instruction set. Formats without an entry cannot be written or read.

#pragma once

namespace kvarto::KVARTO_ISA {

static void fill_codec_entries(KernelTable& table) {
  const auto set = [&](Codec codec, EncodeFunction encode, DecodeFunction decode) {
    table.encode[static_cast<int>(codec)] = encode;
    table.decode[static_cast<int>(codec)] = decode;
  };
  set(Codec::kFp8E4M3, encode_e4m3, decode_e4m3);
  set(Codec::kFp8E5M2, encode_e5m2, decode_e5m2);
  set(Codec::kQ8_0, encode_blocks<Q8Block>, decode_blocks<Q8Block>);
  set(Codec::kQ5_1, encode_blocks<NibbleBlock<5, true>>, decode_blocks<NibbleBlock<5, true>>);
  set(Codec::kQ5_0, encode_blocks<NibbleBlock<5, false>>, decode_blocks<NibbleBlock<5, false>>);
  set(Codec::kQ4_1, encode_blocks<NibbleBlock<4, true>>, decode_blocks<NibbleBlock<4, true>>);
  set(Codec::kQ4_0, encode_blocks<NibbleBlock<4, false>>, decode_blocks<NibbleBlock<4, false>>);
  set(Codec::kIq4Nl, encode_blocks<Iq4NlBlock>, decode_blocks<Iq4NlBlock>);
  set(Codec::kInt8, encode_int8, decode_int8);
  set(Codec::kInt4, encode_int4, decode_int4);
  set(Codec::kNvfp4, encode_fp4<Nvfp4Scale>, decode_fp4<Nvfp4Scale>);
  set(Codec::kMxfp4, encode_fp4<Mxfp4Scale>, decode_fp4<Mxfp4Scale>);
  set(Codec::kFp8Scaled128, encode_fp8_scaled<128, true>, decode_fp8_scaled<128, true>);
  set(Codec::kFp8Scaled64, encode_fp8_scaled<64, false>, decode_fp8_scaled<64, false>);
  set(Codec::kFp8Scaled32, encode_fp8_scaled<32, false>, decode_fp8_scaled<32, false>);
}

}  // namespace kvarto::KVARTO_ISA
