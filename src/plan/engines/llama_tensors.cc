#include "plan/engines/llama_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan/owned_stream.h"

namespace kvarto {
namespace {

constexpr std::uint64_t kDefaultUbatch = 512;  // llama.cpp's -ub
constexpr std::uint64_t kCudaRowElements = 512;
constexpr std::uint64_t kCudaAlignBytes = 128;

// Sizes above this would overflow the products below; no machine has them.
constexpr std::uint64_t kMaxCells = std::uint64_t{1} << 36;

constexpr std::array kTypes = {Codec::kF32,   Codec::kF16,  Codec::kBF16,
                               Codec::kQ8_0,  Codec::kQ4_0, Codec::kQ4_1,
                               Codec::kIq4Nl, Codec::kQ5_0, Codec::kQ5_1};

Result<Codec> llama_type(const std::string& name, std::string_view engine) {
  if (name == "auto") return Codec::kF16;
  const auto codec = codec_from_name(name);
  const bool is_known = codec && (std::find(kTypes.begin(), kTypes.end(), *codec) != kTypes.end() ||
                                  (*codec == Codec::kQ8KV && engine == "ik_llama.cpp"));
  if (is_known) return *codec;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("engine {}: cache type {}, expected one of f32 f16 bf16 q8_0 q4_0 q4_1 "
                          "iq4_nl q5_0 q5_1",
                          engine, name));
}

bool is_quantised(Codec codec) { return codec_info(codec).group_elements != 1; }

// The numbers that cells are computed from.
struct Cells {
  std::uint64_t context = 0;  // tokens one sequence may have
  std::uint64_t sequences = 1;
  std::uint64_t per_stream = 0;  // cells of one stream of the base cache
  std::uint64_t streams = 1;
  std::uint64_t window_sequences = 1;  // sequences that share one stream
  std::uint64_t ubatch = kDefaultUbatch;
};

Result<Cells> cells_of(const EngineCase& engine_case, std::string_view engine,
                       const LlamaRules& rules) {
  const PlanRequest& request = engine_case.request;
  const bool is_unified = is_one_pool(engine_case);
  if (request.context > kMaxCells || request.num_sequences > kMaxCells) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("engine {}: context {} times {} sequences, expected at most {} cells",
                            engine, request.context, request.num_sequences, kMaxCells));
  }
  Cells cells;
  cells.context = request.context;
  cells.sequences = request.num_sequences;
  cells.per_stream = round_up(request.context, rules.cell_multiple);
  cells.streams = is_unified ? 1 : request.num_sequences;
  cells.window_sequences = is_unified ? request.num_sequences : 1;
  if (request.micro_batch != 0) cells.ubatch = request.micro_batch;
  if (cells.per_stream > kMaxCells / cells.streams) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("engine {}: {} streams of {} cells, expected at most {} cells", engine,
                            cells.streams, cells.per_stream, kMaxCells));
  }
  return cells;
}

// Cells of the windowed cache, one stream.
std::uint64_t window_cells(const Cells& cells, std::uint64_t window, const LlamaRules& rules) {
  const std::uint64_t wanted = window * cells.window_sequences + cells.ubatch;
  return round_up(std::min(cells.per_stream, wanted), rules.window_cell_multiple);
}

class TensorBuilder {
 public:
  TensorBuilder(const EngineCase& engine_case, std::string_view engine, const LlamaRules& rules,
                const Cells& cells, const LlamaTypes& types)
      : case_(engine_case), engine_(engine), rules_(rules), cells_(cells), types_(types) {}

  Status add(const OwnedStream& owned) {
    const Stream& stream = *owned.stream;
    if (stream.purpose == Purpose::kState) return {};  // not a tensor of cells
    if (stream.name == "k" || stream.name == "v") return add_heads(owned);
    if (stream.name == "latent") return add_latent(owned);
    const bool is_sparse =
        stream.name == "index_key" || stream.name == "compressed_kv" || stream.name == "window_kv";
    if (!is_sparse || !rules_.has_sparse_caches) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("engine {}: stream {} of architecture {}, expected k, v or latent: "
                              "this version does not run it",
                              engine_, stream.name, owned.group->architecture));
    }
    return add_row(owned, whole_width(stream), LlamaSide::kKey);
  }

  // Without flash attention V is stored transposed, every layer as wide as the widest.
  void widen_values() {
    std::uint64_t widest = 0;
    for (const LlamaTensor& t : tensors_) {
      if (t.side == LlamaSide::kValue) widest = std::max(widest, t.heads * t.head_elements);
    }
    for (LlamaTensor& t : tensors_) {
      const std::uint64_t own = t.heads * t.head_elements;
      if (t.side != LlamaSide::kValue || own == widest || t.is_second_copy) continue;
      t.is_widened = true;
      t.own_elements = own;
      t.heads = 1;
      t.head_elements = widest;
    }
  }

  std::vector<LlamaTensor> take() && { return std::move(tensors_); }

 private:
  static std::uint64_t whole_width(const Stream& stream) {
    std::uint64_t width = 0;
    for (const Field& field : stream.fields) width += std::uint64_t{field.heads} * field.width;
    return width;
  }

  LlamaTensor tensor_of(const OwnedStream& owned, LlamaSide side) const {
    const Stream& stream = *owned.stream;
    LlamaTensor tensor;
    tensor.side = side;
    tensor.subject = subject_of(owned);
    tensor.layers = owned.num_layers;
    tensor.codec = side == LlamaSide::kKey ? types_.key : types_.value;
    const bool is_windowed = stream.lifetime.kind == Lifetime::Kind::kWindow ||
                             stream.lifetime.kind == Lifetime::Kind::kChunk;
    std::uint64_t per_stream = cells_.per_stream;
    std::uint64_t needed = 0;
    const bool is_full = case_.request.is_swa_full || !rules_.has_window_cache;
    if (is_windowed && rules_.has_window_cache) {
      tensor.cache = LlamaCache::kWindow;
      if (!is_full) {
        per_stream = window_cells(cells_, stream.lifetime.tokens, rules_);
        needed = std::min(cells_.per_stream,
                          stream.lifetime.tokens * cells_.window_sequences + cells_.ubatch);
      }
    } else if (stream.tokens_per_row > 1 || stream.purpose == Purpose::kIndexer) {
      tensor.cache =
          stream.purpose == Purpose::kIndexer ? LlamaCache::kIndexer : LlamaCache::kCompressed;
      per_stream =
          round_up(ceil_div(cells_.per_stream, stream.tokens_per_row), rules_.cell_multiple);
    }
    tensor.cells = per_stream * cells_.streams;
    const std::uint64_t rows = peak_rows(stream, cells_.context) * cells_.sequences;
    tensor.live_cells = std::min(tensor.cells, rows);
    tensor.window_cells =
        needed == 0 ? 0 : std::min(tensor.cells, needed * cells_.streams) - tensor.live_cells;
    if (is_windowed && is_full) {
      // A window that gets every cell: what lies beyond it is slack.
      tensor.window_cells = tensor.cells - tensor.live_cells;
    }
    return tensor;
  }

  Status check_type(const LlamaTensor& tensor) const {
    const CodecInfo& info = codec_info(tensor.codec);
    if (info.group_elements > 1 && tensor.head_elements % info.group_elements != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("engine {}: stream {}: type {} needs a head dim that is a multiple "
                              "of {}, found {}",
                              engine_, tensor.subject.stream, info.name, info.group_elements,
                              tensor.head_elements));
    }
    if (tensor.side == LlamaSide::kValue && is_quantised(tensor.codec) &&
        !case_.request.has_flash_attention) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("engine {}: V type {} without flash attention, expected f32, f16 or "
                              "bf16: a transposed V cannot be quantised",
                              engine_, info.name));
    }
    return {};
  }

  Status push(LlamaTensor tensor) {
    KVARTO_CHECK_OK(check_type(tensor));
    tensors_.push_back(tensor);
    return {};
  }

  Status add_heads(const OwnedStream& owned) {
    const Field& field = owned.stream->fields.front();
    LlamaTensor tensor =
        tensor_of(owned, field.role == CodecRole::kValue ? LlamaSide::kValue : LlamaSide::kKey);
    tensor.heads = field.heads;
    tensor.head_elements = field.width;
    return push(tensor);
  }

  Status add_row(const OwnedStream& owned, std::uint64_t elements, LlamaSide side) {
    LlamaTensor tensor = tensor_of(owned, side);
    tensor.heads = 1;
    tensor.head_elements = elements;
    return push(tensor);
  }

  Status add_latent(const OwnedStream& owned) {
    const QueryShape& query = owned.group->query;
    const std::uint64_t width = whole_width(*owned.stream);
    if (rules_.latent == LatentForm::kFullHeads) {
      if (query.full_qk_dim == 0) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("engine {}: this version expands latents, but the model does not "
                                "say its full head dims (qk_nope_head_dim, v_head_dim)",
                                engine_));
      }
      LlamaTensor key = tensor_of(owned, LlamaSide::kKey);
      key.heads = query.q_heads;
      key.head_elements = query.full_qk_dim;
      key.extra_heads_of = width;
      KVARTO_CHECK_OK(push(key));
      LlamaTensor value = tensor_of(owned, LlamaSide::kValue);
      value.heads = query.q_heads;
      value.head_elements = query.full_v_dim;
      value.is_second_copy = true;
      return push(value);
    }
    KVARTO_CHECK_OK(add_row(owned, width, LlamaSide::kKey));
    if (rules_.latent == LatentForm::kRow) return {};
    LlamaTensor value = tensor_of(owned, LlamaSide::kValue);
    value.heads = 1;
    value.head_elements = owned.stream->fields.front().width;
    value.is_second_copy = true;
    if (rules_.latent == LatentForm::kRowAndTransposed) value.codec = Codec::kF16;
    if (rules_.latent == LatentForm::kRowAndValue) value.codec = types_.value;
    tensors_.push_back(value);
    return {};
  }

  const EngineCase& case_;
  std::string_view engine_;
  const LlamaRules& rules_;
  const Cells& cells_;
  const LlamaTypes& types_;
  std::vector<LlamaTensor> tensors_;
};

}  // namespace

bool is_one_pool(const EngineCase& engine_case) {
  // The caches of rows compressed over tokens keep one stream a sequence even when unified.
  const bool has_compressed_rows = std::any_of(
      engine_case.model.groups.begin(), engine_case.model.groups.end(), [](const LayerGroup& g) {
        return std::any_of(g.streams.begin(), g.streams.end(),
                           [](const Stream& s) { return s.name == "window_kv"; });
      });
  return engine_case.request.is_unified.value_or(false) && !has_compressed_rows;
}

std::uint64_t LlamaTensor::cell_bytes() const {
  return heads * codec_bytes(codec, head_elements).total();
}

std::uint64_t cuda_padding_bytes(const LlamaTensor& tensor, const LlamaRules& rules) {
  std::uint64_t bytes = tensor.bytes();
  const CodecInfo& info = codec_info(tensor.codec);
  if (info.group_elements > 1) {
    std::uint64_t row = tensor.heads * tensor.head_elements;
    if (rules.is_row_one_head) {
      row = tensor.side == LlamaSide::kKey ? tensor.head_elements : row * tensor.cells;
    }
    if (row % kCudaRowElements != 0) {
      bytes += codec_bytes(tensor.codec, kCudaRowElements - row % kCudaRowElements).total();
    }
  }
  return round_up(bytes, kCudaAlignBytes) - tensor.bytes();
}

Result<LlamaTypes> llama_types(const EngineCase& engine_case, std::string_view engine) {
  LlamaTypes types;
  KVARTO_TRY(types.key, llama_type(engine_case.request.types.key, engine));
  KVARTO_TRY(types.value, llama_type(engine_case.request.types.value, engine));
  return types;
}

Result<std::vector<LlamaTensor>> llama_tensors(const EngineCase& engine_case,
                                               std::string_view engine, const LlamaRules& rules) {
  KVARTO_TRY(const LlamaTypes types, llama_types(engine_case, engine));
  KVARTO_TRY(const Cells cells, cells_of(engine_case, engine, rules));
  TensorBuilder builder(engine_case, engine, rules, cells, types);
  for (const auto groups :
       {std::span<const LayerGroup>(engine_case.model.groups), engine_case.draft_groups}) {
    KVARTO_TRY(const std::vector<OwnedStream> streams, owned_streams(groups, 1));
    for (const OwnedStream& owned : streams) KVARTO_CHECK_OK(builder.add(owned));
  }
  if (!engine_case.request.has_flash_attention) builder.widen_values();
  return std::move(builder).take();
}

}  // namespace kvarto
