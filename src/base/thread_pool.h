// A fixed set of threads that run one function together, many times.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace kvarto {

// Cores that this process may use, by hwloc; at least 1.
[[nodiscard]] std::size_t num_usable_cores();

// Not thread-safe; one owner. Idle threads spin for some microseconds, then sleep.
//
// Invariants:
// 1. The owner's thread is thread 0 and runs its share inside run().
// 2. When run() returns, every share has been run, once.
// 3. A share that its thread has not begun by the time the owner is done is run by the owner: where
//    another program has the core of a thread, work goes on without it.
class ThreadPool {
 public:
  enum class Pinning : std::uint8_t { kNone, kCores };

  // Starts `num_threads` - 1 threads. kCores binds each of them, and the caller, to a core of its
  // own while there are enough. Requires: num_threads >= 1.
  // Throws std::system_error if the system gives no thread.
  explicit ThreadPool(std::size_t num_threads, Pinning pinning = Pinning::kNone);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls function(thread) once for every thread in [0, num_threads()), at the same time where the
  // system has cores for it. Requires: function throws nothing, and no call waits for another.
  template <typename Function>
  void run(Function&& function) {
    using Plain = std::remove_reference_t<Function>;
    run_task([](void* context, std::size_t thread) { (*static_cast<Plain*>(context))(thread); },
             const_cast<void*>(static_cast<const void*>(&function)));
  }

  [[nodiscard]] std::size_t num_threads() const { return threads_.size() + 1; }

 private:
  using Task = void (*)(void* context, std::size_t thread);
  // The last round whose share of one thread somebody has taken; a cache line each.
  struct alignas(64) Claim {
    std::atomic<std::uint32_t> round{0};
  };
  void run_task(Task task, void* context);
  void work(std::size_t thread, Pinning pinning);
  bool claim(std::size_t thread, std::uint32_t round);
  void stop();

  Task task_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> round_{0};     // increased to start a task
  alignas(64) std::atomic<std::uint32_t> num_busy_{0};  // shares not run to their end, without 0
  std::atomic<bool> is_stopping_{false};
  std::unique_ptr<Claim[]> claims_;  // of threads from 1 on
  std::vector<std::thread> threads_;
};

}  // namespace kvarto
