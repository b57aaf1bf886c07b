// A buffer of floats on cache-line boundaries that grows and is never copied.

#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace kvarto {

// Not thread-safe; one owner.
class AlignedFloats {
 public:
  static constexpr std::size_t kAlignment = 64;  // bytes: a cache line, a 512-bit vector

  // Makes room for `size` floats; what was there before is lost if it has to grow.
  // The contents are indeterminate.
  float* reserve(std::size_t size) {
    if (size > size_) {
      values_.reset();
      values_.reset(
          static_cast<float*>(::operator new (size * sizeof(float), std::align_val_t{kAlignment})));
      size_ = size;
    }
    return values_.get();
  }

 private:
  struct Delete {
    void operator()(float* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<float, Delete> values_;
  std::size_t size_ = 0;
};

}  // namespace kvarto
