#include "profile/streamed_bytes.h"

namespace kvarto {

Result<StreamedBytes> StreamedBytes::create(std::span<const std::byte> cached,
                                            std::size_t num_threads) {
  constexpr std::size_t kLineBytes = 64;
  StreamedBytes bytes;
  bytes.begin_ = cached.data();
  std::size_t size = cached.size();
  if (size < kMinStreamedBytes) {
    KVARTO_TRY(bytes.own_, Storage::map(kMinStreamedBytes, true));
    KVARTO_CHECK_OK(bytes.own_.populate());
    bytes.begin_ = bytes.own_.begin();
    size = kMinStreamedBytes;
  }
  bytes.num_threads_ = num_threads;
  bytes.share_bytes_ = size / num_threads / kLineBytes * kLineBytes;
  return bytes;
}

std::span<const std::byte> StreamedBytes::share(std::size_t thread) const {
  return {begin_ + share_bytes_ * thread, share_bytes_};
}

}  // namespace kvarto
