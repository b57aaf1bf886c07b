#include "kvarto/attention.h"

#include <fmt/format.h>

#include <new>

#include "attention/arithmetic.h"
#include "attention/call_check.h"
#include "attention/decode.h"
#include "attention/prefill.h"
#include "attention/runner_state.h"
#include "base/checked.h"

namespace kvarto {
namespace {

constexpr std::uint32_t kMaxThreads = 1024;

// Decode; prefill fills slabs for every format.
std::string_view kernel_name(const CacheView& view, const PassShape& shape, bool is_selected) {
  if (shape.slab.is_used) return is_selected ? "selected_shared_rows" : "dense_shared_rows";
  if (is_selected) return "selected_rows";
  const bool fills_k = shape.k_fill != nullptr || (shape.k_codes.is_tiled && !shape.is_integer);
  const bool fills_v = shape.v_fill != nullptr || (shape.v_codes.is_tiled && !shape.is_integer);
  if (view.k.layout.order == RowOrder::kHeadTiles) {
    if (fills_k && fills_v) return "dense_tiles_fill_kv";
    if (fills_k || fills_v) return fills_k ? "dense_tiles_fill_k" : "dense_tiles_fill_v";
    return "dense_tiles";
  }
  if (fills_k && fills_v) return "dense_rows_fill_kv";
  if (fills_k || fills_v) return fills_k ? "dense_rows_fill_k" : "dense_rows_fill_v";
  return "dense_rows";
}

AttentionReport start_report(const CacheView& view, const PassShape& shape, Arith arith,
                             std::size_t num_threads, bool is_selected = false) {
  AttentionReport report;
  report.kernel = kernel_name(view, shape, is_selected);
  report.isa = shape.is_integer ? shape.kernels->codes.isa : shape.kernels->name;
  report.layout = layout_of(view);
  report.arith = arith_name(arith);
  report.query_bits = shape.is_integer ? shape.query_parts * 8 : 0;
  report.num_threads = num_threads;
  return report;
}

// Checks shapes and arithmetic.
Result<PassShape> check_all(const CallShape& call, const ChosenArith& chosen) {
  KVARTO_TRY(PassShape shape, check_call(call, *chosen.kernels));
  KVARTO_CHECK_OK(check_arith(chosen.arith, call, shape));
  shape.is_integer = chosen.arith == Arith::kInt8;
  shape.query_parts = call.options->query_bits / 8;
  if (chosen.arith == Arith::kF16) {  // half the bytes of f32: twice the part
    shape.part_tiles *= 2;
    shape.part_elements *= 2;
  }
  return shape;
}

// What each sequence reads: rows, or entries of its selection.
Result<std::vector<RowRange>> ranges_of(const DecodeCall& call) {
  if (!call.selections.empty()) KVARTO_CHECK_OK(check_selections(call));
  std::vector<RowRange> ranges;
  for (std::size_t s = 0; s < call.view.sequences.size(); ++s) {
    const std::uint64_t length = call.view.sequences[s].num_tokens;
    if (call.selections.empty()) {
      ranges.push_back(length == 0 ? RowRange{} : visible_rows(length - 1, call.options));
      KVARTO_CHECK_OK(check_sequence(call.view, s, ranges.back().first));
    } else {
      ranges.push_back({0, call.selections[s].size()});
      KVARTO_CHECK_OK(check_sequence(call.view, s,
                                     call.selections[s].empty() ? length : call.selections[s][0]));
    }
  }
  return ranges;
}

// No exception leaves the library: scratch memory that cannot be had is an error.
template <typename Run>
auto reporting_memory(const Run& run) -> decltype(run()) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "attention: scratch memory could not be allocated");
  }
}

}  // namespace

AttentionRunner::AttentionRunner(std::unique_ptr<RunnerState> state) : state_(std::move(state)) {}
AttentionRunner::AttentionRunner(AttentionRunner&&) noexcept = default;
AttentionRunner& AttentionRunner::operator=(AttentionRunner&&) noexcept = default;
AttentionRunner::~AttentionRunner() = default;

Result<AttentionRunner> AttentionRunner::create(const RunnerOptions& options) {
  if (options.num_threads == 0 || options.num_threads > kMaxThreads) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("threads: found {}, expected 1 to {}",
                                                         options.num_threads, kMaxThreads));
  }
  if (options.is_pinned && options.num_threads > num_usable_cores()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("threads: found {} pinned, expected at most one for each of {} cores",
                            options.num_threads, num_usable_cores()));
  }
  KVARTO_TRY(const KernelTable* kernels, active_kernels());
  try {
    return AttentionRunner(std::make_unique<RunnerState>(*kernels, options));
  } catch (const std::exception& error) {  // std::system_error of a thread, std::bad_alloc
    return fail(ErrorCode::kOutOfMemory, fmt::format("threads: {} could not be started: {}",
                                                     options.num_threads, error.what()));
  }
}

std::uint32_t AttentionRunner::num_threads() const {
  return static_cast<std::uint32_t>(state_->pool.num_threads());
}

void AttentionRunner::set_observer(Observer* observer) { state_->observer = observer; }

Result<AttentionReport> AttentionRunner::decode(const DecodeCall& call) {
  return reporting_memory([&] { return decode_with(*state_, call); });
}

Result<AttentionReport> decode_with(RunnerState& state, const DecodeCall& call) {
  CallShape shape;
  shape.view = &call.view;
  shape.options = &call.options;
  shape.num_q_heads = call.num_q_heads;
  shape.num_queries = call.view.sequences.size();
  shape.q = call.q.data();
  shape.q_size = call.q.size();
  shape.out_size = call.out.size();
  shape.lse_size = call.lse.size();
  DecodeWork work;
  KVARTO_TRY(const ChosenArith chosen, choose_arith(call.options, call.view, call.num_q_heads,
                                                    *state.kernels, Phase::kDecode));
  KVARTO_TRY(work.shape, check_all(shape, chosen));
  KVARTO_TRY(const std::vector<RowRange> visible, ranges_of(call));
  work.call = &call;
  work.kernels = chosen.kernels;
  work.pool = &state.pool;
  work.scratch = state.scratch;
  work.parts = &state.parts;
  work.observer = state.observer;
  AttentionReport report = start_report(call.view, work.shape, chosen.arith,
                                        state.pool.num_threads(), !call.selections.empty());
  run_decode(work, visible, report);
  return report;
}

Result<AttentionReport> AttentionRunner::prefill(const PrefillCall& call) {
  return reporting_memory([&] { return prefill_with(*state_, call); });
}

Result<AttentionReport> prefill_with(RunnerState& state, const PrefillCall& call) {
  if (call.q_lens.size() != call.view.sequences.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("q_lens: found {} values, expected {} sequences", call.q_lens.size(),
                            call.view.sequences.size()));
  }
  CheckedSum num_queries;
  for (std::size_t s = 0; s < call.q_lens.size(); ++s) {
    if (call.q_lens[s] > call.view.sequences[s].num_tokens) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("q_lens: found {} for sequence {}, expected at "
                              "most its {} tokens",
                              call.q_lens[s], s, call.view.sequences[s].num_tokens));
    }
    num_queries.add(call.q_lens[s]);
  }
  if (num_queries.has_overflow()) {
    return fail(ErrorCode::kInvalidArgument, "q_lens: the sum exceeds 64 bits");
  }
  CallShape shape;
  shape.view = &call.view;
  shape.options = &call.options;
  shape.num_q_heads = call.num_q_heads;
  shape.num_queries = num_queries.total();
  shape.q = call.q.data();
  shape.q_size = call.q.size();
  shape.out_size = call.out.size();
  shape.lse_size = call.lse.size();
  PrefillWork work;
  KVARTO_TRY(const ChosenArith chosen, choose_arith(call.options, call.view, call.num_q_heads,
                                                    *state.kernels, Phase::kPrefill));
  KVARTO_TRY(work.shape, check_all(shape, chosen));
  for (std::size_t s = 0; s < call.q_lens.size(); ++s) {
    if (call.q_lens[s] == 0) continue;
    const std::uint64_t first = call.view.sequences[s].num_tokens - call.q_lens[s];
    KVARTO_CHECK_OK(check_sequence(call.view, s, visible_rows(first, call.options).first));
  }
  work.call = &call;
  work.pool = &state.pool;
  work.scratch = state.scratch;
  AttentionReport report =
      start_report(call.view, work.shape, chosen.arith, state.pool.num_threads());
  run_prefill(work, report);
  return report;
}

Result<SelectReport> AttentionRunner::select(const SelectCall& call, Selection& selection) {
  return reporting_memory([&] { return select_with(*state_, call, selection); });
}

Result<SelectReport> select_with(RunnerState& state, const SelectCall& call, Selection& selection) {
  return run_select(call, *state.kernels, state.pool, state.index, selection);
}

}  // namespace kvarto
