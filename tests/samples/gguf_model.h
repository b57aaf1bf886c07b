// A whole GGUF model in memory from its architecture's keys and tensors: samples for tests.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "samples/gguf_writer.h"

namespace kvarto::samples {

// Keys are named without the architecture. Tensors are f32, one behind the other.
class GgufModel {
 public:
  explicit GgufModel(std::string_view architecture) : architecture_(architecture) {
    keys_.string("general.architecture", architecture);
  }
  GgufModel& u32(std::string_view key, std::uint32_t value) {
    keys_.u32(full(key), value);
    return *this;
  }
  GgufModel& u32s(std::string_view key, const std::vector<std::uint32_t>& values) {
    keys_.u32s(full(key), values);
    return *this;
  }
  GgufModel& bools(std::string_view key, const std::vector<bool>& values) {
    keys_.bools(full(key), values);
    return *this;
  }
  // [inputs, outputs], as GGUF orders dimensions.
  GgufModel& tensor(std::string_view name, std::uint64_t inputs, std::uint64_t outputs) {
    tensors_.tensor(name, {inputs, outputs}, 0, tensor_bytes_);
    tensor_bytes_ += (inputs * outputs * 4 + 31) / 32 * 32;
    ++num_tensors_;
    return *this;
  }
  [[nodiscard]] std::string str() const {
    GgufWriter file(num_tensors_, num_keys_ + 1);
    file.raw(std::string_view(keys_.str()).substr(kStartBytes));
    file.raw(std::string_view(tensors_.str()).substr(kStartBytes));
    return file.payload(tensor_bytes_).str();
  }

 private:
  static constexpr std::size_t kStartBytes = 4 + 4 + 8 + 8;  // what GgufWriter begins with

  std::string full(std::string_view key) {
    ++num_keys_;
    return architecture_ + "." + std::string(key);
  }

  std::string architecture_;
  GgufWriter keys_{0, 0};
  GgufWriter tensors_{0, 0};
  std::uint64_t num_keys_ = 0;
  std::uint64_t num_tensors_ = 0;
  std::uint64_t tensor_bytes_ = 0;
};

}  // namespace kvarto::samples
