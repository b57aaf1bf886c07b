#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>

#include "base/thread_pool.h"
#include "kernels/dispatch.h"
#include "profile/bench_cache.h"
#include "profile/latent_measurement.h"
#include "profile/repetition.h"
#include "profile/streamed_bytes.h"

namespace kvarto {
namespace {

// The reference costs about a nanosecond a multiply-add; beyond this many, a sample of the heads
// is compared, evenly spread.
constexpr double kReferenceBudget = 5e8;

std::uint64_t visible(const AttentionBench& bench, std::uint64_t position) {
  const std::uint64_t rows = position + 1;
  return bench.window != 0 ? std::min(rows, bench.window) : rows;
}

// Query-row pairs of one head of the whole call.
double num_pairs(const AttentionBench& bench, std::span<const std::uint64_t> lengths) {
  double pairs = 0;
  for (const std::uint64_t length : lengths) {
    for (std::uint64_t i = 0; i < bench.q_len; ++i) {
      pairs += static_cast<double>(visible(bench, length - bench.q_len + i));
    }
  }
  return pairs;
}

std::uint64_t unique_bytes(const AttentionBench& bench, const BenchCache& cache) {
  const std::span<const std::uint64_t> lengths = cache.lengths();
  std::uint64_t rows = 0;
  for (const std::uint64_t length : lengths) {
    const std::uint64_t first_query = length - bench.q_len;
    rows += length - (first_query + 1 - visible(bench, first_query));
    if (bench.batch_kind == BenchBatch::kForked) break;
  }
  if (bench.latent.has_value()) return rows * cache.row_bytes();
  return rows * bench.kv_heads *
         (codec_bytes(bench.k_codec, bench.qk_dim).total() +
          codec_bytes(bench.v_codec, bench.v_dim).total());
}

enum class Phase : std::uint8_t { kDecode, kPrefill };

class AttentionMeasurement {
 public:
  AttentionMeasurement(const AttentionBench& bench, BenchCache cache, AttentionRunner runner,
                       const KernelTable& kernels, Phase phase)
      : bench_(bench),
        cache_(std::move(cache)),
        runner_(std::move(runner)),
        kernels_(kernels),
        phase_(phase),
        pool_(bench.num_threads,
              bench.num_threads > 1 ? ThreadPool::Pinning::kCores : ThreadPool::Pinning::kNone),
        q_lens_(bench.batch, bench.q_len),
        out_(has_form() ? 0
                        : std::size_t{bench.batch} * bench.q_len * bench.q_heads * bench.v_dim) {
    if (has_form()) latent_.emplace(bench);
  }

  // `unique`: bytes that the architecture has, without a repeat.
  Result<BenchReport> run(std::uint64_t unique) {
    KVARTO_TRY(const AttentionReport ran, attend());
    if (ran.arith == arith_name(Arith::kF16)) {
      KVARTO_TRY(fma_kernels_, half_kernels(kernels_));
    }
    BenchReport report;
    report.kernel = ran.kernel;
    report.isa = ran.isa;
    report.layout = ran.layout;
    report.arith = ran.arith;
    report.query_bits = ran.query_bits;
    is_integer_ = ran.arith == arith_name(Arith::kInt8);
    ran_arithmetic_ = ran_arithmetic(cache_.view(), ran);
    report.rows_read = ran.rows_read;
    report.bytes_read = ran.bytes_read;
    report.unique_kv_bytes = unique;
    report.has_huge_pages =
        residency_of(cache_.storage()).huge_page_bytes * 2 > cache_.storage().size_bytes();
    if (has_form()) {
      report.form = ran_.form;
      report.naive = ran_.naive;
      report.absorbed = ran_.absorbed;
    }
    check(report);
    const std::uint64_t streamed = std::min(unique, cache_.storage().size_bytes());
    KVARTO_TRY(stream_,
               StreamedBytes::create({cache_.storage().begin(), streamed}, bench_.num_threads));
    time(report);
    return report;
  }

 private:
  [[nodiscard]] bool has_form() const {
    return bench_.latent.has_value() && bench_.latent->form.has_value();
  }

  Result<AttentionReport> attend() {
    if (has_form()) {
      const bool is_decode = phase_ == Phase::kDecode;
      const std::span<const std::uint64_t> q_lens(q_lens_.data(), is_decode ? 0 : q_lens_.size());
      KVARTO_TRY(ran_, attend_latent(runner_, latent_->call(cache_, q_lens)));
      return ran_.attention;
    }
    if (phase_ == Phase::kDecode) {
      DecodeCall call;
      call.view = cache_.view();
      call.num_q_heads = bench_.q_heads;
      call.q = cache_.queries();
      call.options.window = bench_.window;
      call.options.arith = bench_.arith;
      call.options.query_bits = bench_.query_bits;
      call.out = out_;
      return runner_.decode(call);
    }
    PrefillCall call;
    call.view = cache_.view();
    call.q_lens = q_lens_;
    call.num_q_heads = bench_.q_heads;
    call.q = cache_.queries();
    call.options.window = bench_.window;
    call.options.arith = bench_.arith;
    call.options.query_bits = bench_.query_bits;
    call.out = out_;
    return runner_.prefill(call);
  }

  [[nodiscard]] double flop() const {
    if (has_form()) {
      return ran_.form == LatentForm::kNaive ? ran_.naive.flop : ran_.absorbed.flop;
    }
    return 2.0 * (bench_.qk_dim + bench_.v_dim) * bench_.q_heads *
           num_pairs(bench_, cache_.lengths());
  }

  void check(BenchReport& report) const {
    const std::uint64_t num_rows = std::uint64_t{bench_.batch} * bench_.q_len * bench_.q_heads;
    const double row_cost = static_cast<double>(bench_.kv_len) * (bench_.qk_dim + bench_.v_dim);
    const auto affordable = static_cast<std::uint64_t>(kReferenceBudget / row_cost) + 1;
    const std::uint64_t num_checked = std::min(num_rows, std::max<std::uint64_t>(affordable, 4));
    double difference = 0;
    double reference = 0;
    double bound = 0;
    for (std::uint64_t i = 0; i < num_checked; ++i) {
      // An odd step visits different heads of different tokens.
      const std::uint64_t row =
          num_checked == num_rows ? i : i * (num_rows / num_checked | 1) % num_rows;
      if (has_form()) {
        latent_->compare(cache_, row / bench_.q_heads,
                         static_cast<std::uint32_t>(row % bench_.q_heads), difference, reference);
        continue;
      }
      const HeadMagnitudes magnitudes = cache_.compare(
          row / bench_.q_heads, static_cast<std::uint32_t>(row % bench_.q_heads),
          std::span(out_).subspan(row * bench_.v_dim, bench_.v_dim), difference, reference);
      bound = std::max(bound, output_error_bound(magnitudes, ran_arithmetic_));
    }
    report.heads_checked = num_checked;
    report.max_rel_error = reference > 0 ? difference / reference : difference;
    if (!has_form()) report.error_bound = reference > 0 ? bound / reference : bound;
  }

  void time(BenchReport& report) {
    constexpr std::size_t kFmaRounds = 20000;  // about 0.1 ms
    TimedWork attention{.run = [&] { static_cast<void>(attend()); },
                        .num_threads = bench_.num_threads};
    TimedWork stream{.run =
                         [&] {
                           pool_.run([&](std::size_t thread) {
                             const std::span<const std::byte> share = stream_.share(thread);
                             keep_result(kernels_.read_stream(share.data(), share.size()));
                           });
                         },
                     .num_threads = bench_.num_threads};
    const bool has_dot_loop = is_integer_ && kernels_.codes.dot_loop != nullptr;
    const FmaLoopFunction loop = has_dot_loop ? kernels_.codes.dot_loop : fma_kernels_->fma_loop;
    const std::uint64_t loop_flop =
        has_dot_loop ? kernels_.codes.dot_loop_operations : fma_kernels_->fma_loop_flop;
    TimedWork fma{.run = [&] { pool_.run([&](std::size_t) { keep_result(loop(kFmaRounds)); }); },
                  .num_threads = bench_.num_threads};
    time_in_turn({&stream, &attention, &fma}, bench_.seconds);
    report.time = attention.timing();
    const double seconds = attention.median_s();
    report.gb_per_s = static_cast<double>(report.unique_kv_bytes) / seconds / 1e9;
    report.stream_bytes = stream_.size_bytes();
    report.machine_gb_per_s = static_cast<double>(report.stream_bytes) / stream.median_s() / 1e9;
    report.gflop_per_s = flop() / seconds / 1e9;
    report.machine_gflop_per_s =
        static_cast<double>(loop_flop) * kFmaRounds * bench_.num_threads / fma.median_s() / 1e9;
  }

  AttentionBench bench_;
  BenchCache cache_;
  AttentionRunner runner_;
  const KernelTable& kernels_;
  const KernelTable* fma_kernels_ = &kernels_;  // whose multiply-add loop is the ceiling
  bool is_integer_ = false;
  RanArithmetic ran_arithmetic_;
  Phase phase_;
  ThreadPool pool_;
  std::vector<std::uint64_t> q_lens_;
  std::vector<float> out_;
  std::optional<LatentMeasurement> latent_;
  LatentReport ran_;
  StreamedBytes stream_;
};

Result<BenchReport> measure(const AttentionBench& asked, Phase phase) {
  AttentionBench bench = asked;
  if (phase == Phase::kDecode) bench.q_len = 1;
  KVARTO_TRY(const KernelTable* kernels, active_kernels());
  KVARTO_TRY(AttentionRunner runner,
             AttentionRunner::create(
                 {.num_threads = bench.num_threads,
                  .is_pinned = bench.num_threads > 1 && bench.num_threads <= num_usable_cores()}));
  AttentionBench stored = bench;
  if (bench.baseline == BenchBaseline::kRepeat) stored.kv_heads = stored.q_heads;
  KVARTO_TRY(BenchCache cache, BenchCache::create(stored, *kernels));
  if (bench.kv_heads == 0 || bench.q_heads % bench.kv_heads != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("query heads: found {}, expected a multiple of the {} kv heads",
                            bench.q_heads, bench.kv_heads));
  }
  const std::uint64_t unique = unique_bytes(bench, cache);
  AttentionMeasurement measurement(stored, std::move(cache), std::move(runner), *kernels, phase);
  return measurement.run(unique);
}

// No exception leaves the library.
Result<BenchReport> reporting_memory(const AttentionBench& bench, Phase phase) {
  try {
    return measure(bench, phase);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "bench: queries and outputs do not fit into memory");
  }
}

}  // namespace

Result<BenchReport> measure_decode(const AttentionBench& bench) {
  return reporting_memory(bench, Phase::kDecode);
}

Result<BenchReport> measure_prefill(const AttentionBench& bench) {
  return reporting_memory(bench, Phase::kPrefill);
}

}  // namespace kvarto
