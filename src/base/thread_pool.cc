#include "base/thread_pool.h"

#include <hwloc.h>

#include <chrono>

namespace kvarto {
namespace {

// Owns the machine's topology as hwloc sees it.
class Topology {
 public:
  Topology() {
    if (hwloc_topology_init(&topology_) != 0) {
      topology_ = nullptr;
    } else if (hwloc_topology_load(topology_) != 0) {
      hwloc_topology_destroy(topology_);
      topology_ = nullptr;
    }
  }
  ~Topology() {
    if (topology_ != nullptr) hwloc_topology_destroy(topology_);
  }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  [[nodiscard]] std::size_t num_cores() const {
    if (topology_ == nullptr) return 1;
    const int cores = hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_CORE);
    return cores < 1 ? 1 : static_cast<std::size_t>(cores);
  }

  // Binds the calling thread to core `index`, if there is one. Binding is a wish: a system that
  // refuses it costs speed, not correctness.
  void bind_to_core(std::size_t index) const {
    if (topology_ == nullptr || index >= num_cores()) return;
    const hwloc_obj_t core =
        hwloc_get_obj_by_type(topology_, HWLOC_OBJ_CORE, static_cast<unsigned>(index));
    if (core == nullptr) return;
    hwloc_bitmap_t set = hwloc_bitmap_dup(core->cpuset);
    if (set == nullptr) return;
    hwloc_bitmap_singlify(set);
    hwloc_set_cpubind(topology_, set, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(set);
  }

 private:
  hwloc_topology_t topology_ = nullptr;
};

const Topology& topology() {
  static const Topology instance;
  return instance;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A waiting thread spins so long before it sleeps: longer than the gap between two tasks of one
// step, and short where the thread that it waits for needs this core. A clock measures it, because
// a pause takes 40 cycles on some processors and 140 on others.
constexpr std::chrono::microseconds kSpinTime{40};
constexpr int kPausesARead = 16;  // reading the clock costs about a pause

// Waits until `value` differs from `old` and returns it.
std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesARead; ++i) {
      const std::uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  for (;;) {
    value.wait(old, std::memory_order_acquire);
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
  }
}

}  // namespace

std::size_t num_usable_cores() { return topology().num_cores(); }

ThreadPool::ThreadPool(std::size_t num_threads, Pinning pinning)
    : claims_(std::make_unique<Claim[]>(num_threads - 1)) {
  if (pinning == Pinning::kCores && num_threads > 1) topology().bind_to_core(0);
  threads_.reserve(num_threads - 1);
  try {
    for (std::size_t thread = 1; thread < num_threads; ++thread) {
      threads_.emplace_back([this, thread, pinning] { work(thread, pinning); });
    }
  } catch (...) {  // the system has no thread left: those that began must end first
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  is_stopping_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Every share is claimed once a round, by its thread or by the owner, so that the round before is
// what an open claim holds; a thread that comes too late finds another number and goes on waiting.
bool ThreadPool::claim(std::size_t thread, std::uint32_t round) {
  std::uint32_t before = round - 1;
  return claims_[thread - 1].round.compare_exchange_strong(before, round,
                                                           std::memory_order_acq_rel);
}

void ThreadPool::run_task(Task task, void* context) {
  if (threads_.empty()) {
    task(context, 0);
    return;
  }
  task_ = task;
  context_ = context;
  num_busy_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
  const std::uint32_t round = round_.fetch_add(1, std::memory_order_release) + 1;
  round_.notify_all();
  task(context, 0);
  // Without this, a thread that waits for a core (another program's slice is some milliseconds, and
  // a token has hundreds of tasks) would hold up every task.
  for (std::size_t thread = 1; thread <= threads_.size(); ++thread) {
    if (!claim(thread, round)) continue;
    task(context, thread);
    num_busy_.fetch_sub(1, std::memory_order_acq_rel);
  }
  for (std::uint32_t busy = num_busy_.load(std::memory_order_acquire); busy != 0;) {
    busy = wait_for_change(num_busy_, busy);
  }
}

void ThreadPool::work(std::size_t thread, Pinning pinning) {
  if (pinning == Pinning::kCores) topology().bind_to_core(thread);
  std::uint32_t round = 0;
  for (;;) {
    round = wait_for_change(round_, round);
    if (is_stopping_.load(std::memory_order_relaxed)) return;
    // Only a share of its own is a promise that task_ stays as it is.
    if (!claim(thread, round)) continue;
    task_(context_, thread);
    if (num_busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) num_busy_.notify_one();
  }
}

}  // namespace kvarto
