#include "kvarto/latent_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>
#include <vector>

#include "attention/call_check.h"
#include "attention/latent_products.h"
#include "base/checked.h"

namespace kvarto {
namespace {

// Queries that are absorbed at once, and keys and values that are expanded at once.
constexpr std::uint64_t kMaxScratchBytes = std::uint64_t{256} << 20;

Status invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

// A checked call and what follows from it.
struct Plan {
  const LatentCall* call = nullptr;
  LatentDims dims;
  LatentWork work;
  AttentionOptions options;
  std::vector<RowRange> visible;  // by sequence: rows, or places of its selection
  bool is_prefill = false;

  [[nodiscard]] std::uint64_t num_queries(std::size_t sequence) const {
    return is_prefill ? call->q_lens[sequence] : 1;
  }
};

Status check_size(std::string_view name, std::size_t found, std::uint64_t a, std::uint64_t b,
                  std::uint64_t c) {
  const auto rows = checked_mul(a, b);
  const auto size = rows ? checked_mul(*rows, c) : std::nullopt;
  if (size.has_value() && *size == found) return {};
  return invalid(fmt::format("{}: found {} values, expected {} x {} x {}", name, found, a, b, c));
}

Result<LatentDims> dims_of(const LatentCall& call) {
  const CacheView& view = call.view;
  const std::uint64_t row = std::uint64_t{view.k.width} + view.k_tail.width;
  const std::uint64_t latent = std::uint64_t{view.v.width} + view.v_tail.width;
  if (view.k.heads != 1 || latent == 0 || latent > row) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("view: found {} heads of {} elements with values of {}, expected one "
                            "head whose first elements are the values",
                            view.k.heads, row, latent));
  }
  const LatentWeights& weights = call.weights;
  if (call.num_heads == 0 || weights.v_dim == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("found {} heads with values of {} elements, expected at least 1 of 1",
                            call.num_heads, weights.v_dim));
  }
  LatentDims dims;
  dims.heads = call.num_heads;
  dims.latent = static_cast<std::uint32_t>(latent);
  dims.rope = static_cast<std::uint32_t>(row - latent);
  dims.nope = weights.nope_dim;
  dims.v = weights.v_dim;
  if (std::uint64_t{dims.nope} + dims.rope > kMaxHeadDim || dims.v > kMaxHeadDim ||
      dims.nope + dims.rope == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("weights: found heads of {} + {} and {} elements, expected 1 to {}",
                            dims.nope, dims.rope, dims.v, kMaxHeadDim));
  }
  return dims;
}

// The first row that any query of a sequence sees, and the end of the last one's.
RowRange visible_to_all(const Plan& plan, std::size_t s) {
  const LatentCall& call = *plan.call;
  const std::uint64_t length = call.view.sequences[s].num_tokens;
  if (!call.selections.empty()) return {0, call.selections[s].size()};
  const std::uint64_t queries = plan.num_queries(s);
  if (length == 0 || queries == 0) return {};
  return {visible_rows(length - queries, call.options).first, length};
}

double num_pairs(const Plan& plan, std::size_t s) {
  if (!plan.is_prefill) return static_cast<double>(plan.visible[s].num_rows());
  const std::uint64_t length = plan.call->view.sequences[s].num_tokens;
  double pairs = 0;
  for (std::uint64_t i = length - plan.num_queries(s); i < length; ++i) {
    pairs += static_cast<double>(visible_rows(i, plan.options).num_rows());
  }
  return pairs;
}

Status check_lengths(const LatentCall& call) {
  const std::size_t num_sequences = call.view.sequences.size();
  if (!call.q_lens.empty() && !call.selections.empty()) {
    return fail(ErrorCode::kUnsupported, "selections: found in a prefill, expected a decode");
  }
  if (!call.q_lens.empty() && call.q_lens.size() != num_sequences) {
    return invalid(fmt::format("q_lens: found {} values, expected {} sequences", call.q_lens.size(),
                               num_sequences));
  }
  for (std::size_t s = 0; s < call.q_lens.size(); ++s) {
    if (call.q_lens[s] <= call.view.sequences[s].num_tokens) continue;
    return invalid(fmt::format("q_lens: found {} for sequence {}, expected at most its {} tokens",
                               call.q_lens[s], s, call.view.sequences[s].num_tokens));
  }
  return {};
}

// The view, the options and the tables, as the absorbed form reads them.
Status check_reads(const Plan& plan, const KernelTable& kernels) {
  const LatentCall& call = *plan.call;
  CallShape shape;
  shape.view = &call.view;
  shape.options = &plan.options;
  shape.num_q_heads = call.num_heads;
  shape.num_queries = plan.work.num_queries;
  shape.q_size = shape.num_queries * call.num_heads * plan.dims.row();
  shape.out_size = shape.num_queries * call.num_heads * plan.dims.latent;
  KVARTO_CHECK_OK(check_call(shape, kernels));
  if (!call.selections.empty()) {
    DecodeCall decode;
    decode.view = call.view;
    decode.options = plan.options;
    decode.selections = call.selections;
    KVARTO_CHECK_OK(check_selections(decode));
  }
  for (std::size_t s = 0; s < call.view.sequences.size(); ++s) {
    const std::uint64_t length = call.view.sequences[s].num_tokens;
    const bool is_picked = !call.selections.empty() && !call.selections[s].empty();
    const std::uint64_t first = !call.selections.empty()
                                    ? (is_picked ? call.selections[s][0] : length)
                                    : visible_to_all(plan, s).first;
    KVARTO_CHECK_OK(check_sequence(call.view, s, first));
  }
  return {};
}

Result<Plan> plan_call(const LatentCall& call, const KernelTable& kernels) {
  Plan plan;
  plan.call = &call;
  plan.is_prefill = !call.q_lens.empty();
  KVARTO_TRY(plan.dims, dims_of(call));
  KVARTO_CHECK_OK(check_lengths(call));
  const LatentDims& dims = plan.dims;
  CheckedSum tokens;
  for (std::size_t s = 0; s < call.view.sequences.size(); ++s) tokens.add(plan.num_queries(s));
  if (tokens.has_overflow())
    return fail(ErrorCode::kInvalidArgument, "q_lens: the sum exceeds 64 bits");
  plan.work.num_queries = tokens.total();
  KVARTO_CHECK_OK(check_size("w_uk", call.weights.w_uk.size(), dims.heads, dims.nope, dims.latent));
  KVARTO_CHECK_OK(check_size("w_uv", call.weights.w_uv.size(), dims.heads, dims.v, dims.latent));
  KVARTO_CHECK_OK(check_size("q", call.q.size(), tokens.total(), dims.heads, dims.key()));
  KVARTO_CHECK_OK(check_size("out", call.out.size(), tokens.total(), dims.heads, dims.v));
  if (!call.lse.empty()) {
    KVARTO_CHECK_OK(check_size("lse", call.lse.size(), tokens.total(), dims.heads, 1));
  }
  plan.options = call.options;
  if (!plan.options.scale) plan.options.scale = 1 / std::sqrt(static_cast<float>(dims.key()));
  KVARTO_CHECK_OK(check_reads(plan, kernels));
  const RowPairBytes row = row_pair_bytes(call.view);
  plan.work.num_heads = dims.heads;
  plan.work.latent_dim = dims.latent;
  plan.work.rope_dim = dims.rope;
  plan.work.nope_dim = dims.nope;
  plan.work.v_dim = dims.v;
  plan.work.row_bytes = row.k + row.v;
  for (std::size_t s = 0; s < call.view.sequences.size(); ++s) {
    plan.visible.push_back(visible_to_all(plan, s));
    plan.work.num_rows += plan.visible.back().num_rows();
    plan.work.num_pairs += num_pairs(plan, s);
  }
  return plan;
}

// Adds what one of several calls did.
void add_report(const AttentionReport& part, AttentionReport& all) {
  const std::uint64_t items = all.num_work_items;
  const std::uint64_t rows = all.rows_read;
  const std::uint64_t bytes = all.bytes_read;
  all = part;
  all.num_work_items += items;
  all.rows_read += rows;
  all.bytes_read += bytes;
}

// --- Absorbed ------------------------------------------------------------------------------------

class Absorbed {
 public:
  Absorbed(RunnerState& state, const Plan& plan)
      : state_(state), plan_(plan), dims_(plan.dims), call_(*plan.call) {}

  Result<AttentionReport> run() { return plan_.is_prefill ? prefill() : decode(); }

 private:
  // Absorbed queries and what comes out for them.
  struct Buffers {
    std::vector<float> folded;
    std::vector<float> latents;
  };

  [[nodiscard]] Buffers buffers_for(std::uint64_t tokens) const {
    return {std::vector<float>(tokens * dims_.heads * dims_.row()),
            std::vector<float>(tokens * dims_.heads * dims_.latent)};
  }

  void fold(std::uint64_t first_token, std::uint64_t tokens, Buffers& buffers) const {
    const float* q = call_.q.data() + first_token * dims_.heads * dims_.key();
    fold_queries(state_, dims_, {call_.weights.w_uk.data(), tokens, q, buffers.folded.data()});
  }
  void unfold(std::uint64_t first_token, std::uint64_t tokens, const Buffers& buffers) const {
    float* out = call_.out.data() + first_token * dims_.heads * dims_.v;
    expand_outputs(state_, dims_, {call_.weights.w_uv.data(), tokens, buffers.latents.data(), out});
  }
  [[nodiscard]] std::span<float> lse_of(std::uint64_t first_token, std::uint64_t tokens) const {
    if (call_.lse.empty()) return {};
    return call_.lse.subspan(first_token * dims_.heads, tokens * dims_.heads);
  }

  // All sequences at once: those that share a prefix read it together.
  Result<AttentionReport> decode() const {
    const std::uint64_t tokens = plan_.work.num_queries;
    Buffers buffers = buffers_for(tokens);
    fold(0, tokens, buffers);
    DecodeCall decode;
    decode.view = call_.view;
    decode.num_q_heads = dims_.heads;
    decode.q = buffers.folded;
    decode.options = plan_.options;
    decode.out = buffers.latents;
    decode.lse = call_.lse;
    decode.selections = call_.selections;
    KVARTO_TRY(const AttentionReport report, decode_with(state_, decode));
    unfold(0, tokens, buffers);
    return report;
  }

  // Sequence by sequence, as many tokens at a time as scratch memory holds.
  Result<AttentionReport> prefill() const {
    const std::uint64_t token_bytes =
        std::uint64_t{dims_.heads} * (dims_.row() + dims_.latent) * sizeof(float);
    const std::uint64_t slice = std::max<std::uint64_t>(1, kMaxScratchBytes / token_bytes);
    AttentionReport all;
    std::uint64_t first_token = 0;
    for (std::size_t s = 0; s < call_.q_lens.size(); ++s) {
      for (std::uint64_t done = 0; done < call_.q_lens[s];) {
        const std::uint64_t tokens = std::min(slice, call_.q_lens[s] - done);
        SequenceView sequence = call_.view.sequences[s];
        sequence.num_tokens -= call_.q_lens[s] - done - tokens;
        KVARTO_TRY(const AttentionReport part, prefill_slice(sequence, first_token, tokens));
        add_report(part, all);
        done += tokens;
        first_token += tokens;
      }
    }
    return all;
  }

  Result<AttentionReport> prefill_slice(const SequenceView& sequence, std::uint64_t first_token,
                                        std::uint64_t tokens) const {
    Buffers buffers = buffers_for(tokens);
    fold(first_token, tokens, buffers);
    PrefillCall prefill;
    prefill.view = call_.view;
    prefill.view.sequences = {&sequence, 1};
    prefill.q_lens = {&tokens, 1};
    prefill.num_q_heads = dims_.heads;
    prefill.q = buffers.folded;
    prefill.options = plan_.options;
    prefill.out = buffers.latents;
    prefill.lse = lse_of(first_token, tokens);
    KVARTO_TRY(const AttentionReport report, prefill_with(state_, prefill));
    unfold(first_token, tokens, buffers);
    return report;
  }

  RunnerState& state_;
  const Plan& plan_;
  const LatentDims& dims_;
  const LatentCall& call_;
};

// --- Naive ---------------------------------------------------------------------------------------

// Expands keys and values of some heads of one sequence, attends them, and goes on.
class Naive {
 public:
  Naive(RunnerState& state, const Plan& plan)
      : state_(state), plan_(plan), dims_(plan.dims), call_(*plan.call) {}

  Result<AttentionReport> run() {
    AttentionReport all;
    std::uint64_t first_token = 0;
    for (std::uint32_t s = 0; s < call_.view.sequences.size(); ++s) {
      const std::uint64_t tokens = plan_.num_queries(s);
      if (tokens == 0) continue;
      const std::uint32_t group = heads_at_once(s, tokens);
      for (std::uint32_t head = 0; head < dims_.heads; head += group) {
        const std::uint32_t heads = std::min(group, dims_.heads - head);
        KVARTO_TRY(const AttentionReport part, attend(s, {first_token, tokens}, {head, heads}));
        add_report(part, all);
      }
      first_token += tokens;
    }
    return all;
  }

 private:
  struct Part {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };

  [[nodiscard]] std::uint32_t heads_at_once(std::uint32_t s, std::uint64_t tokens) const {
    const std::uint64_t rows = round_up(plan_.visible[s].num_rows(), kExpandedRows) + kExpandedRows;
    const std::uint64_t head_bytes = (rows + tokens) * (dims_.key() + dims_.v) * sizeof(float);
    const std::uint64_t heads = kMaxScratchBytes / std::max<std::uint64_t>(head_bytes, 1);
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(heads, 1, dims_.heads));
  }

  Result<AttentionReport> attend(std::uint32_t s, Part tokens, Part heads) {
    const bool is_selected = !call_.selections.empty();
    const RowRange rows = plan_.visible[s];
    const std::uint64_t first_block = rows.first / kExpandedRows;
    const std::uint64_t num_blocks =
        rows.num_rows() == 0 ? 0 : ceil_div(rows.end, kExpandedRows) - first_block;
    const std::uint64_t num_rows = std::max<std::uint64_t>(num_blocks, 1) * kExpandedRows;
    ExpandCall expand;
    expand.view = &call_.view;
    expand.sequence = s;
    expand.rows = rows;
    if (is_selected) expand.selection = call_.selections[s];
    expand.is_selected = is_selected;
    expand.weights = &call_.weights;
    expand.first_head = static_cast<std::uint32_t>(heads.first);
    expand.num_heads = static_cast<std::uint32_t>(heads.count);
    expand.keys = keys_.reserve(num_rows * heads.count * dims_.key());
    expand.values = values_.reserve(num_rows * heads.count * dims_.v);
    expand_rows(state_, dims_, expand);

    table_.resize(num_blocks);
    std::iota(table_.begin(), table_.end(), 0u);
    SequenceView sequence;
    sequence.block_table = table_;
    sequence.first_block = first_block;
    sequence.num_tokens = is_selected ? rows.end : call_.view.sequences[s].num_tokens;
    CacheView view;
    view.k = expanded_stream(expand.keys, dims_.key(), expand.num_heads);
    view.v = expanded_stream(expand.values, dims_.v, expand.num_heads);
    view.rows_per_block = kExpandedRows;
    view.sequences = {&sequence, 1};
    KVARTO_TRY(AttentionReport report, attend_expanded(view, tokens, heads));
    // Rows of the cache, read once for each group of heads.
    report.rows_read = rows.num_rows();
    report.bytes_read = rows.num_rows() * plan_.work.row_bytes;
    return report;
  }

  static StreamView expanded_stream(const float* begin, std::uint32_t dim, std::uint32_t heads) {
    StreamView stream;
    stream.base = reinterpret_cast<const std::byte*>(begin);
    const std::uint64_t row_bytes = std::uint64_t{dim} * sizeof(float);
    stream.block_stride_bytes = row_bytes * kExpandedRows * heads;
    stream.layout = {RowOrder::kHeadRow, row_bytes * kExpandedRows, row_bytes};
    stream.codec = Codec::kF32;
    stream.heads = heads;
    stream.width = dim;
    return stream;
  }

  // Queries of the heads side by side, and back.
  Result<AttentionReport> attend_expanded(const CacheView& view, Part tokens, Part heads) {
    const std::uint64_t key = dims_.key();
    q_.resize(tokens.count * heads.count * key);
    out_.resize(tokens.count * heads.count * dims_.v);
    lse_.resize(call_.lse.empty() ? 0 : tokens.count * heads.count);
    const auto place = [&](std::uint64_t i) {
      return (tokens.first + i) * dims_.heads + heads.first;
    };
    for (std::uint64_t i = 0; i < tokens.count; ++i) {
      std::copy_n(call_.q.data() + place(i) * key, heads.count * key,
                  q_.data() + i * heads.count * key);
    }
    KVARTO_TRY(const AttentionReport report, run_attention(view, tokens.count, heads));
    for (std::uint64_t i = 0; i < tokens.count; ++i) {
      std::copy_n(out_.data() + i * heads.count * dims_.v, heads.count * dims_.v,
                  call_.out.data() + place(i) * dims_.v);
      if (lse_.empty()) continue;
      std::copy_n(lse_.data() + i * heads.count, heads.count, call_.lse.data() + place(i));
    }
    return report;
  }

  Result<AttentionReport> run_attention(const CacheView& view, std::uint64_t tokens, Part heads) {
    AttentionOptions options = plan_.options;
    const auto of_heads = [&](std::span<const float> values) {
      return values.empty() ? values : values.subspan(heads.first, heads.count);
    };
    options.alibi_slopes = of_heads(options.alibi_slopes);
    options.sink_logits = of_heads(options.sink_logits);
    const auto num_heads = static_cast<std::uint32_t>(heads.count);
    if (!plan_.is_prefill) {
      DecodeCall decode;
      decode.view = view;
      decode.num_q_heads = num_heads;
      decode.q = q_;
      decode.options = options;
      decode.out = out_;
      decode.lse = lse_;
      return decode_with(state_, decode);
    }
    PrefillCall prefill;
    prefill.view = view;
    prefill.q_lens = {&tokens, 1};
    prefill.num_q_heads = num_heads;
    prefill.q = q_;
    prefill.options = options;
    prefill.out = out_;
    prefill.lse = lse_;
    return prefill_with(state_, prefill);
  }

  RunnerState& state_;
  const Plan& plan_;
  const LatentDims& dims_;
  const LatentCall& call_;
  AlignedFloats keys_;
  AlignedFloats values_;
  std::vector<std::uint32_t> table_;
  std::vector<float> q_;
  std::vector<float> out_;
  std::vector<float> lse_;
};

Result<LatentForm> form_of(const Plan& plan) {
  const bool is_half = plan.options.arith == Arith::kF16;
  if (plan.call->form == LatentForm::kNaive && is_half) {
    return fail(ErrorCode::kUnsupported,
                "arith: f16 needs rows whose size is known, which expanded keys are not; expected "
                "the absorbed form");
  }
  if (plan.call->form != LatentForm::kAuto) return plan.call->form;
  return is_half ? LatentForm::kAbsorbed : cheaper_form(plan.work);
}

}  // namespace

Result<LatentReport> attend_latent(AttentionRunner& runner, const LatentCall& call) {
  RunnerState& state = RunnerAccess::state(runner);
  try {
    KVARTO_TRY(const Plan plan, plan_call(call, *state.kernels));
    LatentReport report;
    report.naive = latent_cost(LatentForm::kNaive, plan.work);
    report.absorbed = latent_cost(LatentForm::kAbsorbed, plan.work);
    KVARTO_TRY(report.form, form_of(plan));
    if (report.form == LatentForm::kNaive) {
      KVARTO_TRY(report.attention, Naive(state, plan).run());
    } else {
      KVARTO_TRY(report.attention, Absorbed(state, plan).run());
    }
    return report;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "attention: scratch memory could not be allocated");
  }
}

}  // namespace kvarto
