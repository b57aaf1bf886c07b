// Times ggml_flash_attn_ext of the ggml that it is compiled and linked against (llama.cpp's or
// ik_llama.cpp's), one call a graph, over a cache as llama.cpp lays it out: a row holds all KV
// heads of a token, and a mask is passed. run.py speaks to it in lines:
//
//   prepare key=value ...   ->  ready cache_bytes=N max_rel_error=X
//   time seconds=S          ->  timed median_us=X runs=N quiet=N
//
// An answer that begins with "error" says why there is none. ggml aborts on what it does not
// support; the end of this process is the answer then.

#include <ggml.h>
#if __has_include(<ggml-cpu.h>)
#include <ggml-cpu.h>
#endif
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

struct ggml_threadpool;

namespace {

// Rows of queries that every mask is padded to; covers all versions of GGML_KQ_MASK_PAD.
constexpr std::int64_t kMaskPad = 64;
// Graph, tensors and alignment; more than ggml_graph_overhead() and a dozen tensors.
constexpr std::size_t kOverheadBytes = std::size_t{16} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// As Kvarto's own measurements: a run is quiet when the threads had the processor for 96 % of it.
constexpr double kQuietShare = 0.96;
constexpr std::size_t kMinRuns = 3;
constexpr double kPatience = 3;

using Words = std::map<std::string, std::string>;

Words words_of(std::istringstream& line) {
  Words words;
  std::string word;
  while (line >> word) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) words[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return words;
}

std::int64_t count_of(const Words& words, const std::string& key, std::int64_t otherwise) {
  const auto found = words.find(key);
  return found == words.end() ? otherwise : std::strtoll(found->second.c_str(), nullptr, 10);
}

struct Shape {
  ggml_type type = GGML_TYPE_F16;
  std::int64_t q_heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0, kv_len = 0, q_len = 1;
  bool is_latent = false;     // V is a view of K
  std::int64_t v_offset = 0;  // elements of a row of K before those of V
  int num_threads = 1;
  bool wants_huge_pages = false;
};

std::optional<ggml_type> type_of(const std::string& name) {
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const char* found = ggml_type_name(static_cast<ggml_type>(i));
    if (found != nullptr && name == found) return static_cast<ggml_type>(i);
  }
  return std::nullopt;
}

// Eight random bytes added up: close to N(0, 1), and quick enough for a billion elements.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed) {}
  float next() {
    state_ += 0x9e3779b97f4a7c15;  // splitmix64
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    z = (z & 0x00ff00ff00ff00ff) + ((z >> 8) & 0x00ff00ff00ff00ff);
    const auto sum = static_cast<float>((z * 0x0001000100010001) >> 48);
    return (sum - 4 * 255.0f) * (1.0f / 209.0f);  // sqrt(8 x (256^2 - 1) / 12)
  }

 private:
  std::uint64_t state_;
};

// ggml_quantize_chunk takes, in some versions, one argument more.
template <typename Quantise>
void quantise_row(Quantise quantise, ggml_type type, const std::vector<float>& row, void* target) {
  const auto width = static_cast<std::int64_t>(row.size());
  if constexpr (std::is_invocable_v<Quantise, ggml_type, const float*, void*, std::int64_t,
                                    std::int64_t, std::int64_t, const float*>) {
    quantise(type, row.data(), target, 0, 1, width, nullptr);
  } else {
    quantise(type, row.data(), target, 0, 1, width, nullptr, nullptr);
  }
}

void fill(ggml_tensor* rows, std::uint64_t seed) {
  const std::int64_t width = rows->ne[0];
  const std::int64_t count = ggml_nrows(rows);
  const auto part = [&](std::int64_t first, std::int64_t last) {
    Noise noise(seed + static_cast<std::uint64_t>(first) * 0x1234567);
    std::vector<float> row(static_cast<std::size_t>(width));
    for (std::int64_t i = first; i < last; ++i) {
      for (float& x : row) x = noise.next();
      void* target = static_cast<char*>(rows->data) + i * rows->nb[1];
      if (rows->type == GGML_TYPE_F32) {
        std::memcpy(target, row.data(), row.size() * sizeof(float));
      } else {
        quantise_row(&ggml_quantize_chunk, rows->type, row, target);
      }
    }
  };
  std::thread second(part, count / 2, count);
  part(0, count / 2);
  second.join();
}

// ggml_graph_plan takes a thread pool or, in older versions, does not.
template <typename Plan>
ggml_cplan plan_of(Plan plan, ggml_cgraph* graph, int num_threads) {
  if constexpr (std::is_invocable_v<Plan, ggml_cgraph*, int, ggml_threadpool*>) {
    return plan(graph, num_threads, nullptr);
  } else {
    return plan(graph, num_threads);
  }
}

class Attention {
 public:
  explicit Attention(const Shape& shape) : shape_(shape) {
    allocate();
    build();
  }
  ~Attention() {
    if (context_ != nullptr) ggml_free(context_);
    if (pages_ != nullptr) munmap(pages_, pages_bytes_);
  }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  bool run() { return ggml_graph_compute(graph_, &plan_) == GGML_STATUS_SUCCESS; }
  std::size_t cache_bytes() const {
    return ggml_nbytes(k_rows_) + (v_rows_ == k_rows_ ? 0 : ggml_nbytes(v_rows_));
  }
  // max |difference| / max |reference| of the last query of the first and the last head, in double
  // precision on what the cache stores.
  double error() const;

 private:
  void allocate();
  void build();
  ggml_tensor* heads_of(ggml_tensor* rows, std::int64_t dim, std::int64_t offset) const;
  ggml_tensor* new_mask() const;
  std::vector<float> head_rows(const ggml_tensor* heads, std::int64_t head) const;

  Shape shape_;
  void* pages_ = nullptr;
  std::size_t pages_bytes_ = 0;
  ggml_context* context_ = nullptr;
  ggml_tensor *q_ = nullptr, *k_rows_ = nullptr, *v_rows_ = nullptr;
  ggml_tensor *k_ = nullptr, *v_ = nullptr, *out_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  ggml_cplan plan_ = {};
  std::vector<std::uint8_t> work_;
};

void Attention::allocate() {
  const Shape& s = shape_;
  std::size_t bytes = ggml_row_size(s.type, s.qk_dim * s.kv_heads) * s.kv_len;
  if (!s.is_latent) bytes += ggml_row_size(s.type, s.v_dim * s.kv_heads) * s.kv_len;
  const std::int64_t mask_rows = (s.q_len + kMaskPad - 1) / kMaskPad * kMaskPad;
  bytes += static_cast<std::size_t>(s.kv_len * mask_rows) * sizeof(ggml_fp16_t);
  bytes += static_cast<std::size_t>(s.q_heads * s.q_len * (s.qk_dim + s.v_dim)) * sizeof(float);
  bytes += kOverheadBytes;
  if (s.wants_huge_pages) {
    pages_bytes_ = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* found =
        mmap(nullptr, pages_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) throw std::bad_alloc();
    pages_ = found;
    madvise(pages_, pages_bytes_, MADV_HUGEPAGE);
  }
  context_ = ggml_init({bytes, pages_, false});
  if (context_ == nullptr) throw std::bad_alloc();
}

ggml_tensor* Attention::heads_of(ggml_tensor* rows, std::int64_t dim, std::int64_t offset) const {
  const std::size_t head_bytes = ggml_row_size(rows->type, rows->ne[0] / shape_.kv_heads);
  return ggml_view_3d(context_, rows, dim, shape_.kv_len, shape_.kv_heads, rows->nb[1], head_bytes,
                      ggml_row_size(rows->type, offset));
}

ggml_tensor* Attention::new_mask() const {
  const Shape& s = shape_;
  const std::int64_t num_rows = (s.q_len + kMaskPad - 1) / kMaskPad * kMaskPad;
  ggml_tensor* mask = ggml_new_tensor_2d(context_, GGML_TYPE_F16, s.kv_len, num_rows);
  const ggml_fp16_t seen = ggml_fp32_to_fp16(0.0f);
  const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY);
  for (std::int64_t i = 0; i < num_rows; ++i) {
    auto* row = reinterpret_cast<ggml_fp16_t*>(static_cast<char*>(mask->data) + i * mask->nb[1]);
    const std::int64_t num_seen = i < s.q_len ? s.kv_len - s.q_len + i + 1 : 0;
    std::fill(row, row + num_seen, seen);
    std::fill(row + num_seen, row + s.kv_len, hidden);
  }
  return mask;
}

void Attention::build() {
  const Shape& s = shape_;
  q_ = ggml_new_tensor_3d(context_, GGML_TYPE_F32, s.qk_dim, s.q_heads, s.q_len);
  k_rows_ = ggml_new_tensor_2d(context_, s.type, s.qk_dim * s.kv_heads, s.kv_len);
  v_rows_ =
      s.is_latent ? k_rows_ : ggml_new_tensor_2d(context_, s.type, s.v_dim * s.kv_heads, s.kv_len);
  fill(q_, 1);
  fill(k_rows_, 2);
  if (!s.is_latent) fill(v_rows_, 3);
  k_ = heads_of(k_rows_, s.qk_dim, 0);
  v_ = heads_of(v_rows_, s.v_dim, s.is_latent ? s.v_offset : 0);
  ggml_tensor* queries = ggml_permute(context_, q_, 0, 2, 1, 3);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.qk_dim));
  out_ = ggml_flash_attn_ext(context_, queries, k_, v_, new_mask(), scale, 0.0f, 0.0f);
  ggml_flash_attn_ext_set_prec(out_, GGML_PREC_F32);
  graph_ = ggml_new_graph(context_);
  ggml_build_forward_expand(graph_, out_);
  plan_ = plan_of(&ggml_graph_plan, graph_, s.num_threads);
  work_.resize(plan_.work_size);
  plan_.work_data = work_.data();
}

// One head as f32, read by ggml itself.
std::vector<float> Attention::head_rows(const ggml_tensor* heads, std::int64_t head) const {
  const std::int64_t dim = heads->ne[0], count = heads->ne[1];
  const auto elements = static_cast<std::size_t>(dim * count);
  const std::size_t bytes =
      elements * sizeof(float) + static_cast<std::size_t>(count) * 4 + kOverheadBytes;
  ggml_context* context = ggml_init({bytes, nullptr, false});
  if (context == nullptr) throw std::bad_alloc();
  ggml_tensor* ids = ggml_new_tensor_1d(context, GGML_TYPE_I32, count);
  for (std::int64_t i = 0; i < count; ++i) {
    static_cast<std::int32_t*>(ids->data)[i] = static_cast<std::int32_t>(i);
  }
  ggml_tensor* one = ggml_view_2d(context, const_cast<ggml_tensor*>(heads), dim, count,
                                  heads->nb[1], static_cast<std::size_t>(head) * heads->nb[2]);
  ggml_tensor* rows = ggml_get_rows(context, one, ids);
  ggml_cgraph* graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, rows);
  ggml_cplan plan = plan_of(&ggml_graph_plan, graph, 1);
  std::vector<std::uint8_t> work(plan.work_size);
  plan.work_data = work.data();
  ggml_graph_compute(graph, &plan);
  std::vector<float> found(elements);
  std::memcpy(found.data(), rows->data, elements * sizeof(float));
  ggml_free(context);
  return found;
}

double Attention::error() const {
  const Shape& s = shape_;
  double worst = 0, largest = 0;
  for (const std::int64_t head : {std::int64_t{0}, s.q_heads - 1}) {
    const std::int64_t kv_head = head / (s.q_heads / s.kv_heads);
    const std::vector<float> k = head_rows(k_, kv_head), v = head_rows(v_, kv_head);
    const auto* q = reinterpret_cast<const float*>(static_cast<char*>(q_->data) +
                                                   (s.q_len - 1) * q_->nb[2] + head * q_->nb[1]);
    std::vector<double> scores(static_cast<std::size_t>(s.kv_len));
    double top = -INFINITY;
    for (std::int64_t i = 0; i < s.kv_len; ++i) {
      double sum = 0;
      for (std::int64_t d = 0; d < s.qk_dim; ++d) sum += double{q[d]} * k[i * s.qk_dim + d];
      scores[i] = sum / std::sqrt(static_cast<double>(s.qk_dim));
      top = std::max(top, scores[i]);
    }
    std::vector<double> sums(static_cast<std::size_t>(s.v_dim));
    double total = 0;
    for (std::int64_t i = 0; i < s.kv_len; ++i) {
      const double weight = std::exp(scores[i] - top);
      total += weight;
      for (std::int64_t d = 0; d < s.v_dim; ++d) sums[d] += weight * v[i * s.v_dim + d];
    }
    const auto* out = reinterpret_cast<const float*>(
        static_cast<char*>(out_->data) + (s.q_len - 1) * out_->nb[2] + head * out_->nb[1]);
    for (std::int64_t d = 0; d < s.v_dim; ++d) {
      worst = std::max(worst, std::abs(sums[d] / total - double{out[d]}));
      largest = std::max(largest, std::abs(sums[d] / total));
    }
  }
  return worst / largest;
}

double wall_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double processor_s() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::string time_for(Attention& attention, int num_threads, double seconds) {
  std::vector<double> all, quiet;
  const double start = wall_s();
  do {
    const double processor_before = processor_s(), before = wall_s();
    if (!attention.run()) return "error the graph failed";
    const double wall = wall_s() - before;
    all.push_back(wall);
    if (processor_s() - processor_before >= kQuietShare * num_threads * wall) quiet.push_back(wall);
    const double elapsed = wall_s() - start;
    if (elapsed >= kPatience * seconds) break;
    if (elapsed >= seconds && quiet.size() >= kMinRuns) break;
  } while (true);
  std::vector<double>& trusted = quiet.empty() ? all : quiet;
  std::sort(trusted.begin(), trusted.end());
  std::ostringstream answer;
  answer << "timed median_us=" << trusted[trusted.size() / 2] * 1e6 << " runs=" << all.size()
         << " quiet=" << quiet.size();
  return answer.str();
}

std::optional<Shape> shape_of(const Words& words, std::string* problem) {
  Shape shape;
  const auto type = words.find("type");
  const auto known = type_of(type == words.end() ? "" : type->second);
  if (!known.has_value()) {
    *problem = "error this ggml has no such type";
    return std::nullopt;
  }
  shape.type = *known;
  shape.q_heads = count_of(words, "q_heads", 0);
  shape.kv_heads = count_of(words, "kv_heads", 0);
  shape.qk_dim = count_of(words, "qk_dim", 0);
  shape.v_dim = count_of(words, "v_dim", 0);
  shape.kv_len = count_of(words, "kv_len", 0);
  shape.q_len = count_of(words, "q_len", 1);
  shape.is_latent = count_of(words, "latent", 0) != 0;
  shape.v_offset = count_of(words, "v_offset", 0);
  shape.num_threads = static_cast<int>(count_of(words, "threads", 1));
  shape.wants_huge_pages = count_of(words, "huge_pages", 0) != 0;
  if (std::min({shape.q_heads, shape.kv_heads, shape.qk_dim, shape.v_dim, shape.kv_len, shape.q_len,
                std::int64_t{shape.num_threads}}) < 1 ||
      shape.q_heads % shape.kv_heads != 0 || shape.q_len > shape.kv_len ||
      (shape.is_latent && shape.v_offset + shape.v_dim > shape.qk_dim)) {
    *problem = "error no such shape";
    return std::nullopt;
  }
  return shape;
}

}  // namespace

int main() {
  std::unique_ptr<Attention> attention;
  int num_threads = 1;
  std::string text;
  while (std::getline(std::cin, text)) {
    std::istringstream line(text);
    std::string command;
    line >> command;
    const Words words = words_of(line);
    std::string answer = "error expected prepare or time";
    if (command == "prepare") {
      attention.reset();
      if (const std::optional<Shape> shape = shape_of(words, &answer)) {
        attention = std::make_unique<Attention>(*shape);
        num_threads = shape->num_threads;
        attention->run();
        std::ostringstream ready;
        ready << "ready cache_bytes=" << attention->cache_bytes()
              << " max_rel_error=" << attention->error();
        answer = ready.str();
      }
    } else if (command == "time") {
      const auto seconds = words.find("seconds");
      answer = attention == nullptr ? "error nothing is prepared"
                                    : time_for(*attention, num_threads,
                                               seconds == words.end()
                                                   ? 1.0
                                                   : std::strtod(seconds->second.c_str(), nullptr));
    }
    std::cout << answer << std::endl;
  }
  return 0;
}
