// Headers of model files, from disk through the public interface. Files are written to the
// temporary folder first.
//
//   open_gguf_vocabulary        a model with a vocabulary of 100,000 tokens; budget 60 ms as a
//                               whole process
//   list_gguf_tensors           10 MB of tensor records; budget 200 MB/s
//   list_safetensors_tensors    10 MB of JSON header; budget 200 MB/s

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "kvarto/model_file.h"
#include "kvarto/tensor_file.h"

namespace {

constexpr std::size_t kHeaderBytes = 10'000'000;

template <typename Number>
void put(std::string& file, Number value) {
  char bytes[sizeof(Number)];
  std::memcpy(bytes, &value, sizeof(Number));
  file.append(bytes, sizeof(Number));
}

void put_text(std::string& file, std::string_view text) {
  put<std::uint64_t>(file, text.size());
  file += text;
}

void put_u32_key(std::string& file, std::string_view key, std::uint32_t value) {
  put_text(file, key);
  put<std::uint32_t>(file, 4);
  put<std::uint32_t>(file, value);
}

std::string gguf_start(std::uint64_t num_tensors, std::uint64_t num_keys) {
  std::string file = "GGUF";
  put<std::uint32_t>(file, 3);
  put<std::uint64_t>(file, num_tensors);
  put<std::uint64_t>(file, num_keys);
  return file;
}

std::string gguf_with_vocabulary(std::uint64_t num_tokens) {
  std::string file = gguf_start(0, 5);
  put_text(file, "general.architecture");
  put<std::uint32_t>(file, 8);
  put_text(file, "llama");
  put_u32_key(file, "llama.block_count", 32);
  put_u32_key(file, "llama.embedding_length", 4096);
  put_u32_key(file, "llama.attention.head_count", 32);
  put_text(file, "tokenizer.ggml.tokens");
  put<std::uint32_t>(file, 9);
  put<std::uint32_t>(file, 8);
  put<std::uint64_t>(file, num_tokens);
  for (std::uint64_t i = 0; i < num_tokens; ++i) put_text(file, fmt::format("token{}", i));
  return file;
}

std::string gguf_with_tensors() {
  std::string records;
  std::uint64_t count = 0;
  for (; records.size() < kHeaderBytes; ++count) {
    put_text(records, fmt::format("blk.{}.ffn_down_exps.weight", count));
    put<std::uint32_t>(records, 2);
    put<std::uint64_t>(records, 8);
    put<std::uint64_t>(records, 1);
    put<std::uint32_t>(records, 0);
    put<std::uint64_t>(records, count * 32);
  }
  std::string file = gguf_start(count, 0) + records;
  file.resize((file.size() + 31) / 32 * 32 + count * 32);
  return file;
}

std::string safetensors_with_tensors() {
  std::string header = "{";
  std::uint64_t offset = 0;
  for (std::uint64_t i = 0; header.size() < kHeaderBytes; ++i, offset += 16) {
    header += fmt::format(
        "{}\"model.layers.{}.mlp.experts.{}.down_proj.weight\":{{\"dtype\":\"BF16\","
        "\"shape\":[2,4],\"data_offsets\":[{},{}]}}",
        i == 0 ? "" : ",", i / 128, i % 128, offset, offset + 16);
  }
  header += "}";
  std::string file;
  put<std::uint64_t>(file, header.size());
  file += header;
  file.resize(file.size() + offset);
  return file;
}

// A file in the temporary folder, removed at the end.
class SampleFile {
 public:
  SampleFile(std::string_view extension, const std::string& bytes) {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvarto-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    path_ = (folder_ / fmt::format("sample{}", extension)).string();
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  SampleFile(const SampleFile&) = delete;
  SampleFile& operator=(const SampleFile&) = delete;
  ~SampleFile() {
    std::error_code problem;
    std::filesystem::remove_all(folder_, problem);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::filesystem::path folder_;
  std::string path_;
};

void open_gguf_vocabulary(benchmark::State& state) {
  const SampleFile file(".gguf", gguf_with_vocabulary(100'000));
  for (auto _ : state) {
    auto model = kvarto::open_model(file.path());
    if (!model.has_value()) state.SkipWithError(model.error().message.c_str());
    benchmark::DoNotOptimize(model);
  }
}
BENCHMARK(open_gguf_vocabulary)->Unit(benchmark::kMillisecond);

void list_tensors(benchmark::State& state, const SampleFile& file) {
  for (auto _ : state) {
    auto tensors = kvarto::read_tensor_file(file.path());
    if (!tensors.has_value()) state.SkipWithError(tensors.error().message.c_str());
    benchmark::DoNotOptimize(tensors);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(kHeaderBytes) * state.iterations());
}

void list_gguf_tensors(benchmark::State& state) {
  list_tensors(state, SampleFile(".gguf", gguf_with_tensors()));
}
BENCHMARK(list_gguf_tensors)->Unit(benchmark::kMillisecond);

void list_safetensors_tensors(benchmark::State& state) {
  list_tensors(state, SampleFile(".safetensors", safetensors_with_tensors()));
}
BENCHMARK(list_safetensors_tensors)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
