#include "plan/engines/llama_rules.h"

#include <fmt/format.h>

#include <utility>

#include "plan/engines/llama_tensors.h"
#include "plan/owned_stream.h"

namespace kvarto {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

std::string mib(std::uint64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / kMiB);
}

Status check_options(const PlanRequest& request, std::string_view engine) {
  if (request.tensor_parallel != 1) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("engine {}: tensor parallel size {}, expected 1: it places whole "
                            "layers on devices",
                            engine, request.tensor_parallel));
  }
  if (request.context_parallel != 1) {
    return fail(ErrorCode::kUnsupported, fmt::format("engine {}: context parallel size {}, "
                                                     "expected 1",
                                                     engine, request.context_parallel));
  }
  return {};
}

// Divides one tensor's bytes among the causes.
void add_tensor(Ledger& ledger, const LlamaTensor& tensor, const LlamaRules& rules) {
  const std::uint64_t layers = tensor.layers;
  const std::uint64_t cell = tensor.cell_bytes();
  const auto add = [&](Cause cause, std::uint64_t bytes) {
    ledger.add(cause, tensor.subject, bytes * layers);
  };
  const std::uint64_t live = tensor.live_cells;
  if (tensor.is_second_copy) {
    add(Cause::kReplication, live * cell);
  } else if (tensor.cache == LlamaCache::kIndexer) {
    add(Cause::kIndexer, live * cell);
  } else {
    const CodecBytes head = codec_bytes(tensor.codec, tensor.head_elements);
    std::uint64_t payload = head.payload * tensor.heads;
    std::uint64_t scales = head.scales * tensor.heads;
    if (tensor.is_widened) {
      payload = codec_bytes(tensor.codec, tensor.own_elements).payload;
      add(Cause::kPadding, live * (cell - payload));
      scales = 0;
    } else if (tensor.extra_heads_of != 0) {
      const CodecBytes latent = codec_bytes(tensor.codec, tensor.extra_heads_of);
      add(Cause::kReplication, live * (cell - latent.total()));
      payload = latent.payload;
      scales = latent.scales;
    }
    add(Cause::kPayload, live * payload);
    add(Cause::kScales, live * scales);
  }
  add(Cause::kWindowSlack, tensor.window_cells * cell);
  add(Cause::kCellPadding, (tensor.cells - live - tensor.window_cells) * cell);
  add(Cause::kPadding, cuda_padding_bytes(tensor, rules));
}

// Recurrent and compressor states: f32 whatever the cache type, one slot a sequence, and one
// snapshot a draft token in flight.
struct StateBytes {
  std::uint64_t conv = 0;
  std::uint64_t state = 0;
  std::uint64_t slots = 0;
};

Result<StateBytes> add_states(Ledger& ledger, const EngineCase& engine_case) {
  const PlanRequest& request = engine_case.request;
  StateBytes total;
  total.slots = request.num_sequences * (std::uint64_t{1} + request.draft_tokens);
  KVARTO_TRY(const std::vector<OwnedStream> streams, owned_streams(engine_case.model.groups, 1));
  for (const OwnedStream& owned : streams) {
    if (owned.stream->purpose != Purpose::kState) continue;
    CheckedSum elements;
    for (const Field& field : owned.stream->fields) elements.add_product(field.heads, field.width);
    CheckedSum bytes;
    bytes.add_product(elements.total(), sizeof(float) * owned.num_layers);
    const auto slots = checked_mul(bytes.total(), total.slots);
    if (elements.has_overflow() || bytes.has_overflow() || !slots) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("stream {}: {} slots overflow 64 bits",
                                                           owned.stream->name, total.slots));
    }
    ledger.add(Cause::kState, subject_of(owned), bytes.total() * request.num_sequences);
    ledger.add(Cause::kSnapshots, subject_of(owned),
               bytes.total() * request.num_sequences * request.draft_tokens);
    (owned.stream->name == "conv_state" ? total.conv : total.state) += *slots;
  }
  return total;
}

// Sums of the log's lines, without the padding that a device buffer adds.
struct Printed {
  std::uint64_t key = 0, value = 0;
  std::uint64_t base = 0, window = 0, compressed = 0, indexer = 0, cuda_padding = 0;
  std::uint64_t window_cells = 0, base_cells = 0;
  bool has_window = false, has_base = false, has_indexer = false, has_compressed = false;
};

void count(Printed& printed, const LlamaTensor& tensor, const LlamaRules& rules,
           std::uint64_t streams) {
  const std::uint64_t bytes = tensor.bytes() * tensor.layers;
  printed.cuda_padding += cuda_padding_bytes(tensor, rules) * tensor.layers;
  switch (tensor.cache) {
    case LlamaCache::kBase:
      printed.has_base = true;
      printed.base += bytes;
      printed.base_cells = tensor.cells / streams;
      break;
    case LlamaCache::kWindow:
      printed.has_window = true;
      printed.window += bytes;
      printed.window_cells = tensor.cells / streams;
      break;
    case LlamaCache::kCompressed:
      printed.has_compressed = true;
      printed.compressed += bytes;
      return;
    case LlamaCache::kIndexer:
      printed.has_indexer = true;
      printed.indexer += bytes;
      return;
  }
  (tensor.side == LlamaSide::kKey ? printed.key : printed.value) += bytes;
}

void print(EnginePlan& plan, const Printed& printed, const StateBytes& states) {
  auto& out = plan.printed;
  if (printed.has_base || printed.has_window) {
    out["kv_mib"] = mib(printed.key + printed.value);
    out["k_mib"] = mib(printed.key);
    out["v_mib"] = mib(printed.value);
    out["cells"] = fmt::format("{}", printed.has_base ? printed.base_cells : printed.window_cells);
    out["cuda_buffer_mib"] = mib(printed.base + printed.window + printed.compressed +
                                 printed.indexer + printed.cuda_padding);
  }
  if (printed.has_window) {
    out["full_mib"] = mib(printed.base);
    out["swa_mib"] = mib(printed.window);
    out["swa_cells"] = fmt::format("{}", printed.window_cells);
  }
  if (printed.has_indexer) {
    out["main_mib"] = mib(printed.base + printed.window);
    out["indexer_mib"] = mib(printed.indexer);
  }
  if (printed.has_compressed) out["compressed_mib"] = mib(printed.compressed);
  if (states.conv + states.state != 0) {
    out["attn_mib"] = mib(printed.base + printed.window);
    out["r_mib"] = mib(states.conv);
    out["s_mib"] = mib(states.state);
    out["recurrent_mib"] = mib(states.conv + states.state);
    out["mib_per_slot"] = mib((states.conv + states.state) / states.slots);
  }
}

}  // namespace

Result<EnginePlan> plan_llama(const EngineCase& engine_case, std::string_view engine,
                              const LlamaRules& rules) {
  const PlanRequest& request = engine_case.request;
  KVARTO_CHECK_OK(check_options(request, engine));
  KVARTO_TRY(const std::vector<LlamaTensor> tensors, llama_tensors(engine_case, engine, rules));
  const bool is_unified = is_one_pool(engine_case);
  const std::uint64_t streams = is_unified ? 1 : request.num_sequences;
  Ledger ledger;
  Printed printed;
  CheckedSum check;
  for (const LlamaTensor& tensor : tensors) {
    check.add_product(tensor.cells, tensor.cell_bytes());
    CheckedSum layers;
    layers.add_product(check.total(), tensor.layers);
    if (check.has_overflow() || layers.has_overflow()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("engine {}: stream {}: {} cells overflow 64 bits", engine,
                              tensor.subject.stream, tensor.cells));
    }
    add_tensor(ledger, tensor, rules);
    count(printed, tensor, rules, streams);
  }
  KVARTO_TRY(const StateBytes states, add_states(ledger, engine_case));
  EnginePlan plan;
  KVARTO_CHECK_OK(std::move(ledger).finish(plan));
  print(plan, printed, states);
  if (rules.has_one_decimal) {
    const double bytes = static_cast<double>(printed.key + printed.value);
    plan.printed["kv"] = bytes < 1024 * kMiB ? fmt::format("{:.1f} MiB", bytes / kMiB)
                                             : fmt::format("{:.1f} GiB", bytes / kMiB / 1024);
  }
  set_concurrency(plan, request);
  if (is_unified && request.num_sequences > 1) {
    plan.notes.push_back(
        fmt::format("one pool (-kvu): its {} cells are shared by all {} sequences, so the ideal of "
                    "so many whole sequences is larger",
                    request.context, request.num_sequences));
    // A pool does not grow with its sequences: what fits is tokens in all.
    if (plan.tokens) *plan.tokens /= request.num_sequences;
    plan.max_concurrency.reset();
  }
  if (printed.cuda_padding != 0) {
    plan.notes.push_back(
        fmt::format("{} bytes of padding are those of a CUDA buffer; a CPU buffer has none, and "
                    "the engine's \"size\" line does not show them",
                    printed.cuda_padding));
  }
  return plan;
}

}  // namespace kvarto
