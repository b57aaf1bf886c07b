#include "kvarto/shared_kv_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "cache_models.h"

namespace kvarto {
namespace {

// Rows that one thread expects of one of its sequences: row i holds {stamps[i], -stamps[i]}.
struct Expected {
  SequenceId id{};
  std::vector<float> stamps;
};

// One thread's life: sequences are begun, grown, forked, cut, read and ended at random. Stamps are
// distinct between threads, so that a foreign row shows.
class Worker {
 public:
  Worker(SharedKvCache& cache, std::uint32_t number)
      : cache_(cache), random_(number), next_stamp_(static_cast<float>(number) * 1e6f + 1) {}

  void run(int steps) {
    for (int i = 0; i < steps && !has_failed_; ++i) step();
    while (!sequences_.empty()) end(sequences_.size() - 1);
  }
  bool has_failed() const { return has_failed_; }
  int num_refused() const { return num_refused_; }

 private:
  void require(bool is_true) { has_failed_ = has_failed_ || !is_true; }

  void step() {
    const auto choice = random_() % 10;
    if (sequences_.empty() || choice == 0) {
      if (const auto id = cache_.create_sequence()) sequences_.push_back({*id, {}});
      return;
    }
    const std::size_t index = random_() % sequences_.size();
    if (choice == 1) return end(index);
    if (choice == 2) return fork(index);
    if (choice == 3) return truncate(sequences_[index]);
    if (choice <= 5) return check(sequences_[index]);
    grow(sequences_[index]);
  }

  void grow(Expected& sequence) {
    const std::uint64_t count = 1 + random_() % 5;
    const auto grant = cache_.append(sequence.id, count);
    if (!grant || *grant == Grant::kNoFreeBlock) {
      ++num_refused_;
      return;
    }
    std::vector<float> rows;
    const std::uint64_t first = sequence.stamps.size();
    for (std::uint64_t i = 0; i < count; ++i) {
      sequence.stamps.push_back(next_stamp_);
      rows.insert(rows.end(), {next_stamp_, -next_stamp_});
      next_stamp_ += 1;
    }
    require(cache_.write(sequence.id, StreamId{0}, first, source_of(rows)).has_value());
  }

  void check(const Expected& sequence) {
    std::vector<float> rows(2 * sequence.stamps.size());
    require(cache_.read(sequence.id, StreamId{0}, 0, rows).has_value());
    for (std::size_t i = 0; i < sequence.stamps.size(); ++i) {
      require(rows[2 * i] == sequence.stamps[i] && rows[2 * i + 1] == -sequence.stamps[i]);
    }
  }

  void fork(std::size_t index) {
    const std::uint64_t length = random_() % (sequences_[index].stamps.size() + 1);
    const auto child = cache_.fork(sequences_[index].id, length);
    require(child.has_value());
    if (!child || !child->has_value()) return;
    Expected copy{**child, sequences_[index].stamps};
    copy.stamps.resize(length);
    sequences_.push_back(copy);
  }

  void truncate(Expected& sequence) {
    const std::uint64_t length = random_() % (sequence.stamps.size() + 1);
    require(cache_.truncate(sequence.id, length).has_value());
    sequence.stamps.resize(length);
  }

  void end(std::size_t index) {
    check(sequences_[index]);
    require(cache_.free_sequence(sequences_[index].id).has_value());
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  SharedKvCache& cache_;
  std::minstd_rand random_;
  float next_stamp_;
  std::vector<Expected> sequences_;
  bool has_failed_ = false;
  int num_refused_ = 0;
};

TEST(SharedKvCache, KeepsTheSequencesOfManyThreadsApart) {
  CacheOptions options;
  options.block_size = 4;
  options.num_sequences = 40;
  options.context = 100;
  options.micro_batch = 5;
  options.poisons_freed_blocks = true;
  options.blocks_per_track = {120};  // scarce: appends are refused now and then
  SharedKvCache cache(*KvCache::create(model_of({plain_stream("k")}), options));
  std::vector<Worker> workers;
  for (std::uint32_t i = 1; i <= 4; ++i) workers.emplace_back(cache, i);
  std::vector<std::thread> threads;
  for (Worker& worker : workers) threads.emplace_back([&worker] { worker.run(20000); });
  for (std::thread& thread : threads) thread.join();
  int num_refused = 0;
  for (const Worker& worker : workers) {
    EXPECT_FALSE(worker.has_failed());
    num_refused += worker.num_refused();
  }
  EXPECT_GT(num_refused, 0) << "the pool was never scarce";
  cache.use([](const KvCache& whole) {
    EXPECT_TRUE(whole.verify());
    EXPECT_EQ(whole.usage()[0].num_free, 120u);
  });
}

}  // namespace
}  // namespace kvarto
