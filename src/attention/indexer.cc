#include "attention/indexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "attention/call_check.h"
#include "base/checked.h"

namespace kvarto {
namespace {

// Scores that are held at once: 16 MiB.
constexpr std::size_t kMaxRoundScores = std::size_t{1} << 22;
constexpr std::uint32_t kMaxIndexHeads = 4096;

// Consecutive queries of one sequence.
struct Job {
  std::size_t sequence = 0;
  std::size_t first_query = 0;
  std::uint32_t num_queries = 0;
  std::uint64_t first_visible = 0;  // rows that the first query sees; each next one sees one more
  std::size_t first_score = 0;      // [num_queries][num_rows]
  [[nodiscard]] std::uint64_t num_rows() const { return first_visible + num_queries - 1; }
  [[nodiscard]] std::uint64_t num_groups() const { return ceil_div(num_rows(), kIndexRows); }
};

std::vector<Job> jobs_of(const SelectCall& call) {
  std::vector<Job> jobs;
  std::size_t query = 0;
  for (std::size_t s = 0; s < call.view.sequences.size(); ++s) {
    const std::uint64_t tokens = call.view.sequences[s].num_tokens;
    const std::uint64_t count = call.q_lens.empty() ? 1 : call.q_lens[s];
    for (std::uint64_t done = 0; done < count;) {
      const auto size = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(kIndexQueriesPerReading, count - done));
      if (tokens != 0) jobs.push_back({s, query, size, tokens - count + done + 1, 0});
      done += size;
      query += size;
    }
  }
  return jobs;
}

Result<std::uint64_t> check_lengths(const SelectCall& call) {
  if (!call.q_lens.empty() && call.q_lens.size() != call.view.sequences.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("q_lens: found {} values, expected {} sequences", call.q_lens.size(),
                            call.view.sequences.size()));
  }
  CheckedSum num_queries;
  for (std::size_t s = 0; s < call.view.sequences.size(); ++s) {
    const std::uint64_t tokens = call.view.sequences[s].num_tokens;
    if (tokens > std::numeric_limits<std::uint32_t>::max()) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("sequence {}: found {} rows, expected less than 2^32", s, tokens));
    }
    if (!call.q_lens.empty() && call.q_lens[s] > tokens) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("q_lens: found {} for sequence {}, expected at most its {} tokens",
                              call.q_lens[s], s, tokens));
    }
    num_queries.add(call.q_lens.empty() ? 1 : call.q_lens[s]);
    KVARTO_CHECK_OK(check_sequence(call.view, s, 0));
  }
  return num_queries.total();
}

Status check_size(std::string_view name, std::size_t found, std::uint64_t queries,
                  std::uint64_t width) {
  if (const auto size = checked_mul(queries, width); size.has_value() && *size == found) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: found {} values, expected {} x {}", name, found, queries, width));
}

Result<std::uint64_t> check_select(const SelectCall& call) {
  if (call.num_index_heads == 0 || call.num_index_heads > kMaxIndexHeads) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("num_index_heads: found {}, expected 1 to {}", call.num_index_heads,
                            kMaxIndexHeads));
  }
  if (call.top_k == 0)
    return fail(ErrorCode::kInvalidArgument, "top_k: found 0, expected 1 or more");
  if (call.arith > IndexArith::kInt16) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("arith: found {}, expected one of IndexArith",
                            static_cast<unsigned>(call.arith)));
  }
  KVARTO_TRY(const std::uint64_t num_queries, check_lengths(call));
  KVARTO_CHECK_OK(check_size("q", call.q.size(), num_queries,
                             std::uint64_t{call.num_index_heads} * call.view.k.width));
  KVARTO_CHECK_OK(check_size("weights", call.weights.size(), num_queries, call.num_index_heads));
  return num_queries;
}

// Runs jobs in rounds whose scores fit into memory.
class Indexer {
 public:
  Indexer(const SelectCall& call, const IndexKeys& keys, ThreadPool& pool, IndexState& state)
      : call_(call),
        keys_(keys),
        pool_(pool),
        state_(state),
        num_padded_(static_cast<std::uint32_t>(ceil_div(call.num_index_heads, kIndexHeadLanes)) *
                    kIndexHeadLanes),
        query_floats_(std::size_t{num_padded_} * (keys.dim() + 1)) {
    state_.threads.resize(pool.num_threads());
    for (IndexState::Thread& thread : state_.threads) keys_.reserve(thread.slab);
  }

  void run(std::span<Job> jobs, Selection& selection) {
    while (!jobs.empty()) {
      std::size_t num_scores = 0;
      std::size_t count = 0;
      for (; count < jobs.size(); ++count) {
        const std::size_t scores = jobs[count].num_rows() * jobs[count].num_queries;
        if (count != 0 && num_scores + scores > kMaxRoundScores) break;
        jobs[count].first_score = num_scores;
        num_scores += scores;
      }
      scores_ = state_.scores.reserve(num_scores);
      run_round(jobs.first(count), selection);
      jobs = jobs.subspan(count);
    }
  }

  [[nodiscard]] std::uint64_t rows_read() const { return rows_read_; }

 private:
  void run_round(std::span<const Job> jobs, Selection& selection) {
    const std::size_t first = jobs.front().first_query;
    const std::size_t end = jobs.back().first_query + jobs.back().num_queries;
    first_query_ = first;
    queries_ = state_.queries.reserve((end - first) * query_floats_);
    weights_ = state_.weights.reserve((end - first) * num_padded_);
    const std::size_t num_threads = pool_.num_threads();
    pool_.run([&](std::size_t thread) {
      for (std::size_t i = first + thread; i < end; i += num_threads) pack(i);
    });
    std::uint64_t weight = 0;
    for (const Job& job : jobs) {
      weight += job.num_groups() * job.num_queries;
      rows_read_ += job.num_rows();
    }
    pool_.run([&](std::size_t thread) {
      score_share(jobs, weight * thread / num_threads, weight * (thread + 1) / num_threads,
                  state_.threads[thread].slab);
    });
    pool_.run([&](std::size_t thread) {
      for (const Job& job : jobs) {
        for (std::uint32_t i = 0; i < job.num_queries; ++i) {
          if ((job.first_query + i) % num_threads == thread) {
            select(job, i, state_.threads[thread].top_k, selection);
          }
        }
      }
    });
  }

  void pack(std::size_t query) const {
    const std::size_t at = query - first_query_;
    PackIndexArgs args;
    args.q = call_.q.data() + query * call_.num_index_heads * keys_.dim();
    args.weights = call_.weights.data() + query * call_.num_index_heads;
    args.num_heads = call_.num_index_heads;
    args.num_padded = num_padded_;
    args.dim = keys_.dim();
    args.packed = queries_ + at * query_floats_;
    args.packed_weights = weights_ + at * num_padded_;
    keys_.arithmetic().pack(args);
  }

  // The groups of rows whose weights (queries that they serve) lie in [begin, end) of all.
  void score_share(std::span<const Job> jobs, std::uint64_t begin, std::uint64_t end,
                   KeySlab& slab) const {
    std::uint64_t before = 0;
    for (const Job& job : jobs) {
      const std::uint64_t groups = job.num_groups();
      // A group belongs to the share in which its weight begins.
      const auto group_at = [&](std::uint64_t bound) {
        return std::min(groups, bound <= before ? 0 : ceil_div(bound - before, job.num_queries));
      };
      score_groups(job, group_at(begin), group_at(end), slab);
      before += groups * job.num_queries;
    }
  }

  void score_groups(const Job& job, std::uint64_t begin, std::uint64_t end, KeySlab& slab) const {
    const SequenceView& sequence = call_.view.sequences[job.sequence];
    const auto run_of = [&](std::uint64_t group) {
      const std::uint64_t first = group * kIndexRows;
      return KeyRun{first, static_cast<std::uint32_t>(
                               std::min<std::uint64_t>(kIndexRows, job.num_rows() - first))};
    };
    for (std::uint64_t group = begin; group < end; ++group) {
      const KeyRun run = run_of(group);
      keys_.fill(sequence, run, slab);
      IndexScoreArgs args;
      args.keys = slab.keys.reserve(0);
      args.scales = slab.scales;
      args.count = run.count;
      args.dim = keys_.dim();
      args.num_padded = num_padded_;
      if (group + 1 < end) {
        const IndexKeys::Bytes next = keys_.bytes_at(sequence, run_of(group + 1));
        args.next = next.begin;
        args.next_bytes = next.size;
      }
      for (std::uint32_t i = 0; i < job.num_queries; ++i) {
        const std::size_t at = job.first_query + i - first_query_;
        args.q = queries_ + at * query_floats_;
        args.weights = weights_ + at * num_padded_;
        args.scores = scores_ + job.first_score + i * job.num_rows() + run.first;
        keys_.arithmetic().score(args);
        args.next_bytes = 0;
      }
    }
  }

  void select(const Job& job, std::uint32_t query, TopKScratch& scratch,
              Selection& selection) const {
    const std::span<const float> scores(scores_ + job.first_score + query * job.num_rows(),
                                        job.first_visible + query);
    const std::span<std::uint32_t> room = selection.room(job.first_query + query);
    select_largest(scores, room, scratch);
    selection.set_size(job.first_query + query, room.size());
  }

  const SelectCall& call_;
  const IndexKeys& keys_;
  ThreadPool& pool_;
  IndexState& state_;
  std::uint32_t num_padded_;
  std::size_t query_floats_;
  std::size_t first_query_ = 0;
  float* queries_ = nullptr;
  float* weights_ = nullptr;
  float* scores_ = nullptr;
  std::uint64_t rows_read_ = 0;
};

}  // namespace

std::string_view index_arith_name(IndexArith arith) {
  return arith == IndexArith::kF32 ? "f32" : "int16";
}

std::vector<SequenceView> query_views(std::span<const SequenceView> sequences,
                                      std::span<const std::uint64_t> q_lens) {
  std::vector<SequenceView> views;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::uint64_t tokens = sequences[s].num_tokens;
    for (std::uint64_t i = 0; i < q_lens[s]; ++i) {
      views.push_back(sequences[s]);
      views.back().num_tokens = tokens - q_lens[s] + i + 1;
    }
  }
  return views;
}

void Selection::reset(std::span<const std::size_t> capacities) {
  begin_.assign(1, 0);
  for (const std::size_t capacity : capacities) begin_.push_back(begin_.back() + capacity);
  rows_.resize(begin_.back());
  queries_.assign(capacities.size(), {});
}

std::span<std::uint32_t> Selection::room(std::size_t query) {
  return std::span(rows_).subspan(begin_[query], begin_[query + 1] - begin_[query]);
}

void Selection::set_size(std::size_t query, std::size_t size) {
  queries_[query] = std::span(rows_).subspan(begin_[query], size);
}

Result<SelectReport> run_select(const SelectCall& call, const KernelTable& kernels,
                                ThreadPool& pool, IndexState& state, Selection& selection) {
  const bool is_int16 = call.arith == IndexArith::kInt16;
  KVARTO_TRY(const IndexKeys keys, IndexKeys::open(call.view, kernels, is_int16));
  KVARTO_TRY(const std::uint64_t num_queries, check_select(call));
  std::vector<Job> jobs = jobs_of(call);
  std::vector<std::size_t> capacities(num_queries, 0);
  for (const Job& job : jobs) {
    for (std::uint32_t i = 0; i < job.num_queries; ++i) {
      capacities[job.first_query + i] = std::min(call.top_k, job.first_visible + i);
    }
  }
  selection.reset(capacities);
  Indexer indexer(call, keys, pool, state);
  indexer.run(jobs, selection);
  SelectReport report;
  report.isa = keys.arithmetic().isa;
  report.arith = index_arith_name(call.arith);
  report.num_threads = pool.num_threads();
  report.num_queries = num_queries;
  for (const Job& job : jobs) {
    for (std::uint32_t i = 0; i < job.num_queries; ++i) report.rows_seen += job.first_visible + i;
  }
  report.rows_read = indexer.rows_read();
  report.bytes_read = indexer.rows_read() * keys.row_bytes();
  report.rows_selected = selection.num_rows();
  return report;
}

}  // namespace kvarto
