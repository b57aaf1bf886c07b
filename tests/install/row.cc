// A user's program: the bytes of one row of eight heads of 128 elements. Its exit code is the
// verdict.

#include <kvarto/codec.h>

int main() {
  // 8 x 128 elements of 2 bytes.
  return 8 * kvarto::codec_bytes(kvarto::Codec::kBF16, 128).total() == 2048 ? 0 : 1;
}
