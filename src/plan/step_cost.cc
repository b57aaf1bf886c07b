#include "plan/step_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "kvarto/tracks.h"
#include "plan/owned_stream.h"

namespace kvarto {
namespace {

constexpr std::uint64_t kNoCap = std::numeric_limits<std::uint64_t>::max();

std::uint64_t elements_of_row(const Stream& stream) {
  std::uint64_t elements = 0;
  for (const Field& field : stream.fields) {
    elements += std::uint64_t{field.heads} * field.width;
  }
  return elements;
}

// FLOP that one query position spends on one visible row of a stream of one layer.
double flop_per_row(const LayerGroup& group, const Stream& stream, std::uint32_t q_heads) {
  const QueryShape& query = group.query;
  switch (stream.purpose) {
    case Purpose::kAttention:
      if (is_value_stream(stream)) return 0.0;
      return 2.0 * q_heads * (static_cast<double>(query.qk_dim) + query.v_dim);
    case Purpose::kIndexer:
      return 2.0 * query.index_heads * query.index_dim;
    case Purpose::kMetadata: {
      if (stream.born_from.empty()) return 0.0;  // positions are looked up, not scored
      // Every query head takes the product with the summary of its own KV head.
      const std::uint32_t heads = stream.fields.empty() ? 1 : stream.fields.front().heads;
      return 2.0 * q_heads * static_cast<double>(elements_of_row(stream)) / std::max(heads, 1u);
    }
    case Purpose::kState:
    case Purpose::kMask:
      return 0.0;
  }
  return 0.0;
}

// Rows of a stream that are born while `tokens` tokens arrive; a state is one row.
std::uint64_t born_rows(const Stream& stream, std::uint64_t tokens) {
  switch (stream.lifetime.kind) {
    case Lifetime::Kind::kConstant:
      return tokens == 0 ? 0 : 1;
    case Lifetime::Kind::kStep:
      return 0;
    default:
      return (tokens - std::min(tokens, stream.birth_delay_tokens)) / stream.tokens_per_row;
  }
}

// Adds the work of one stream in all layers of its group. Reads are summed apart, checked.
struct Reads {
  CheckedSum decode;
  CheckedSum prefill;
};
void add_stream(StepCost& cost, Reads& reads, const OwnedStream& owned,
                const PlanRequest& request) {
  const Stream& stream = *owned.stream;
  const std::uint64_t rows = rows_read(stream, request.context);
  const std::uint32_t q_heads = heads_on_rank(owned.group->query.q_heads, request.tensor_parallel);
  const double flop =
      flop_per_row(*owned.group, stream, q_heads) * static_cast<double>(owned.num_layers);
  cost.decode_flop += flop * static_cast<double>(rows) * static_cast<double>(request.num_sequences);
  if (flop != 0.0) cost.prefill_flop += flop * prefill_rows_seen(stream, request.context);

  CheckedSum layer_bytes;  // one layer, one sequence
  layer_bytes.add_product(rows, owned.on_rank.total());
  CheckedSum copies;
  copies.add_product(owned.num_layers, request.num_sequences);
  if (layer_bytes.has_overflow() || copies.has_overflow()) {
    reads.decode.add_product(kNoCap, kNoCap);
    return;
  }
  reads.decode.add_product(layer_bytes.total(), copies.total());
  if (stream.access.kind == Access::Kind::kNone) return;
  CheckedSum born_bytes;
  born_bytes.add_product(born_rows(stream, request.context), owned.on_rank.total());
  if (born_bytes.has_overflow()) {
    reads.prefill.add_product(kNoCap, kNoCap);
    return;
  }
  reads.prefill.add_product(born_bytes.total(), owned.num_layers);
}

}  // namespace

bool is_value_stream(const Stream& stream) {
  // Quantised tails have fixed codecs, so that their names alone tell K from V.
  if (stream.name == "v" || stream.name.ends_with("_v")) return true;
  return !stream.fields.empty() &&
         std::all_of(stream.fields.begin(), stream.fields.end(),
                     [](const Field& field) { return field.role == CodecRole::kValue; });
}

Result<StepCost> step_cost(const ModelSpec& model, const PlanRequest& request) {
  StepCost cost;
  Reads reads;
  for (const LayerGroup& group : model.groups) {
    for (const Stream& stream : group.streams) {
      KVARTO_TRY(const RowBytes on_rank, rank_row_bytes(stream, request.tensor_parallel));
      add_stream(cost, reads,
                 {.group = &group,
                  .stream = &stream,
                  .num_layers = group.layers.size(),
                  .on_rank = on_rank},
                 request);
    }
  }
  if (reads.decode.has_overflow() || reads.prefill.has_overflow()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the bytes read at context {} by {} sequences overflow 64 bits",
                            request.context, request.num_sequences));
  }
  cost.read_bytes = reads.decode.total();
  cost.prefill_read_bytes = reads.prefill.total();
  return cost;
}

TimeFloor decode_floor(const StepCost& step, const HardwareSpec& device) {
  return {.memory_s = static_cast<double>(step.read_bytes) / device.bandwidth_bytes_per_s,
          .arithmetic_s = step.decode_flop / device.flop_per_s_16bit};
}

TimeFloor prefill_floor(const StepCost& step, const HardwareSpec& device) {
  return {.memory_s = static_cast<double>(step.prefill_read_bytes) / device.bandwidth_bytes_per_s,
          .arithmetic_s = step.prefill_flop / device.flop_per_s_16bit};
}

}  // namespace kvarto
