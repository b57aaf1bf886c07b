#include "kvarto/measure_sparse.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "attention/indexer.h"
#include "base/checked.h"
#include "base/thread_pool.h"
#include "kernels/dispatch.h"
#include "profile/repetition.h"
#include "profile/sparse_cache.h"
#include "profile/streamed_bytes.h"

namespace kvarto {
namespace {

// Heads whose outputs are compared, and queries whose selection is.
constexpr std::size_t kCheckedHeads = 8;
constexpr std::size_t kCheckedQueries = 2;

// What the plan's functions say of one stream: every query needs what a decode step at its position
// reads, and `sharing` consecutive ones read together what the last of them needs.
SparseReads planned_reads(const Stream& stream, const SparseBench& bench, std::uint64_t sharing,
                          double flop_per_row) {
  SparseReads reads;
  const std::uint64_t cached = bench.kv_len - bench.q_len;
  for (std::uint64_t i = 1; i <= bench.q_len; ++i) {
    const std::uint64_t rows = rows_read(stream, cached + i);
    reads.rows += rows;
    if (i % sharing == 0 || i == bench.q_len) reads.rows_read += rows;
  }
  reads.rows *= bench.batch;
  reads.rows_read *= bench.batch;
  reads.bytes = reads.rows * row_bytes(stream).total();
  reads.bytes_read = reads.rows_read * row_bytes(stream).total();
  reads.flop = flop_per_row * static_cast<double>(reads.rows);
  return reads;
}

class SparseMeasurement {
 public:
  SparseMeasurement(const SparseBench& bench, const SparseLayer& layer, const SparseCache& cache,
                    AttentionRunner runner, const KernelTable& kernels)
      : bench_(bench),
        layer_(layer),
        cache_(cache),
        runner_(std::move(runner)),
        kernels_(kernels),
        fma_kernels_(&kernels),
        pool_(bench.num_threads,
              bench.num_threads > 1 ? ThreadPool::Pinning::kCores : ThreadPool::Pinning::kNone),
        q_lens_(bench.batch, bench.q_len),
        queries_(query_views(cache.rows().sequences, q_lens_)),
        out_(queries_.size() * layer.query.q_heads * layer.query.v_dim) {}

  Result<SparseReport> run() {
    SparseReport report;
    KVARTO_TRY(const SelectReport selected, select());
    KVARTO_TRY(const AttentionReport ran, attend(selection_.queries()));
    if (ran.arith == arith_name(Arith::kF16)) {
      KVARTO_TRY(fma_kernels_, half_kernels(kernels_));
    }
    describe(selected, ran, report);
    // The rows of the attention lie side by side for all blocks.
    const StreamView& rows = cache_.rows().k;
    const std::uint64_t num_blocks = ceil_div(bench_.kv_len, cache_.rows().rows_per_block);
    const std::uint64_t bytes =
        std::min(report.unique_kv_bytes, rows.block_stride_bytes * num_blocks);
    KVARTO_TRY(stream_, StreamedBytes::create({rows.base, bytes}, bench_.num_threads));
    check(ran_arithmetic(cache_.rows(), ran), report);
    time(report);
    return report;
  }

 private:
  Result<SelectReport> select() {
    SelectCall call;
    call.view = cache_.index_keys();
    call.q_lens = q_lens_;
    call.num_index_heads = layer_.query.index_heads;
    call.q = cache_.index_queries();
    call.weights = cache_.index_weights();
    call.top_k = layer_.rows.access.count;
    const bool is_f32 = bench_.arith == Arith::kAuto || bench_.arith == Arith::kF32;
    call.arith = is_f32 ? IndexArith::kF32 : IndexArith::kInt16;
    return runner_.select(call, selection_);
  }

  Result<AttentionReport> attend(std::span<const std::span<const std::uint32_t>> selections) {
    DecodeCall call;
    call.view = cache_.rows();
    call.view.sequences = queries_;
    call.num_q_heads = layer_.query.q_heads;
    call.q = cache_.queries();
    call.options.arith = bench_.arith;
    call.out = out_;
    call.selections = selections;
    return runner_.decode(call);
  }

  void describe(const SelectReport& selected, const AttentionReport& ran,
                SparseReport& report) const {
    const QueryShape& query = layer_.query;
    const double index_flop = 2.0 * query.index_heads * query.index_dim;
    const double row_flop = 2.0 * query.q_heads * (static_cast<double>(query.qk_dim) + query.v_dim);
    report.kernel = ran.kernel;
    report.isa = ran.isa;
    report.layout = ran.layout;
    report.arith = ran.arith;
    report.index_isa = selected.isa;
    report.index_arith = selected.arith;
    report.index_reads = {.rows = selected.rows_seen,
                          .bytes = selected.rows_seen * row_bytes(layer_.index).total(),
                          .rows_read = selected.rows_read,
                          .bytes_read = selected.bytes_read,
                          .flop = index_flop * static_cast<double>(selected.rows_seen)};
    report.reads = {.rows = selected.rows_selected,
                    .bytes = selected.rows_selected * row_bytes(layer_.rows).total(),
                    .rows_read = ran.rows_read,
                    .bytes_read = ran.bytes_read,
                    .flop = row_flop * static_cast<double>(ran.rows_read)};
    report.planned_index = planned_reads(layer_.index, bench_, kIndexQueriesPerReading, index_flop);
    report.planned = planned_reads(layer_.rows, bench_, 1, row_flop);
    report.unique_kv_bytes = bench_.batch * bench_.kv_len * row_bytes(layer_.index).total() +
                             num_rows_selected() * row_bytes(layer_.rows).total();
  }

  // Rows that any query of their sequence selects.
  [[nodiscard]] std::uint64_t num_rows_selected() const {
    std::uint64_t num_rows = 0;
    for (std::size_t s = 0; s < bench_.batch; ++s) {
      std::vector<bool> is_selected(bench_.kv_len);
      for (const auto& rows : selection_.queries().subspan(s * bench_.q_len, bench_.q_len)) {
        for (const std::uint32_t row : rows) is_selected[row] = true;
      }
      num_rows +=
          static_cast<std::uint64_t>(std::count(is_selected.begin(), is_selected.end(), true));
    }
    return num_rows;
  }

  void check(const RanArithmetic& ran, SparseReport& report) const {
    const std::size_t num_queries = queries_.size();
    const std::size_t num_checked = std::min(num_queries, kCheckedQueries);
    report.same_rows = 1;
    for (std::size_t i = 0; i < num_checked; ++i) {
      const std::size_t query = num_checked == 1 ? 0 : i * (num_queries - 1) / (num_checked - 1);
      report.same_rows = std::min(
          report.same_rows,
          cache_.same_rows(query, queries_[query].num_tokens, selection_.queries()[query]));
    }
    SparseCache::Deviation deviation;
    double bound = 0;
    const std::size_t num_rows = num_queries * layer_.query.q_heads;
    for (std::size_t i = 0; i < std::min(kCheckedHeads, num_rows); ++i) {
      const std::size_t row = i * (num_rows / std::min(kCheckedHeads, num_rows));
      const std::size_t query = row / layer_.query.q_heads;
      const HeadMagnitudes magnitudes = cache_.compare(
          query, static_cast<std::uint32_t>(row % layer_.query.q_heads),
          selection_.queries()[query],
          std::span(out_).subspan(row * layer_.query.v_dim, layer_.query.v_dim), deviation);
      bound = std::max(bound, output_error_bound(magnitudes, ran));
    }
    const double reference = deviation.reference > 0 ? deviation.reference : 1;
    report.max_rel_error = deviation.difference / reference;
    report.error_bound = bound / reference;
  }

  void time(SparseReport& report) {
    constexpr std::size_t kFmaRounds = 20000;  // about 0.1 ms
    const auto work = [&](std::function<void()> function) {
      return TimedWork{.run = std::move(function), .num_threads = bench_.num_threads};
    };
    TimedWork index = work([&] { static_cast<void>(select()); });
    TimedWork attention = work([&] { static_cast<void>(attend(selection_.queries())); });
    TimedWork both = work([&] {
      static_cast<void>(select());
      static_cast<void>(attend(selection_.queries()));
    });
    TimedWork dense = work([&] { static_cast<void>(attend({})); });
    TimedWork stream = work([&] {
      pool_.run([&](std::size_t thread) {
        const std::span<const std::byte> share = stream_.share(thread);
        keep_result(kernels_.read_stream(share.data(), share.size()));
      });
    });
    TimedWork fma = work(
        [&] { pool_.run([&](std::size_t) { keep_result(fma_kernels_->fma_loop(kFmaRounds)); }); });
    std::vector<TimedWork*> works = {&stream, &index, &attention, &both, &fma};
    if (bench_.q_len == 1) works.push_back(&dense);
    time_in_turn(works, bench_.seconds);
    report.time = both.timing();
    report.index_time = index.timing();
    report.attention_time = attention.timing();
    if (bench_.q_len == 1) report.dense_time = dense.timing();
    report.stream_bytes = stream_.size_bytes();
    report.machine_gb_per_s = static_cast<double>(report.stream_bytes) / stream.median_s() / 1e9;
    report.machine_gflop_per_s = static_cast<double>(fma_kernels_->fma_loop_flop) * kFmaRounds *
                                 bench_.num_threads / fma.median_s() / 1e9;
  }

  const SparseBench& bench_;
  const SparseLayer& layer_;
  const SparseCache& cache_;
  AttentionRunner runner_;
  const KernelTable& kernels_;
  const KernelTable* fma_kernels_;  // whose multiply-add loop is the ceiling
  ThreadPool pool_;
  std::vector<std::uint64_t> q_lens_;
  std::vector<SequenceView> queries_;
  std::vector<float> out_;
  Selection selection_;
  StreamedBytes stream_;
};

Result<SparseReport> measure(const SparseBench& bench) {
  KVARTO_TRY(const KernelTable* kernels, active_kernels());
  KVARTO_TRY(const SparseLayer layer, sparse_layer(bench.model));
  KVARTO_TRY(AttentionRunner runner,
             AttentionRunner::create(
                 {.num_threads = bench.num_threads,
                  .is_pinned = bench.num_threads > 1 && bench.num_threads <= num_usable_cores()}));
  KVARTO_TRY(const SparseCache cache, SparseCache::create(bench, layer));
  return SparseMeasurement(bench, layer, cache, std::move(runner), *kernels).run();
}

}  // namespace

Result<SparseReport> measure_sparse(const SparseBench& bench) {
  try {  // no exception leaves the library
    return measure(bench);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "bench: queries and outputs do not fit into memory");
  }
}

}  // namespace kvarto
