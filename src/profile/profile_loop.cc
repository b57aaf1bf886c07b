#include "profile/profile_loop.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "kernels/dispatch.h"
#include "profile/latency.h"

namespace kvarto {
namespace {

// Rows repeat after so many; their values do not change how fast they are read.
constexpr std::uint64_t kDistinctRows = 512;
// Attention of the prefill runs for as many of its last tokens as this much arithmetic allows: it
// is there to see that it runs and what it costs a token, not to take minutes.
constexpr double kPrefillFlop = 2e10;
constexpr std::uint64_t kMaxWarmUpSteps = 8;
constexpr std::uint64_t kNumEmptyCalls = 200;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

rusage usage_now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

std::uint64_t row_floats(const Stream& stream) {
  std::uint64_t floats = 0;
  for (const Field& field : stream.fields) floats += std::uint64_t{field.heads} * field.width;
  return floats;
}

}  // namespace

const Stream* index_stream(const LayerGroup& group) {
  for (const Stream& stream : group.streams) {
    if (stream.purpose == Purpose::kIndexer) return &stream;
  }
  return nullptr;
}

std::optional<std::uint32_t> selection_layer(const LayerGroup& group) {
  return group.streams.empty() ? std::nullopt : group.streams.front().selection_layer;
}

const LayerGroup* selecting_group(const ModelSpec& model, const LayerGroup& group) {
  const std::optional<std::uint32_t> layer = selection_layer(group);
  if (!layer.has_value()) return index_stream(group) == nullptr ? nullptr : &group;
  for (const LayerGroup& other : model.groups) {
    const bool has_layer =
        std::find(other.layers.begin(), other.layers.end(), *layer) != other.layers.end();
    if (has_layer && index_stream(other) != nullptr && !selection_layer(other)) return &other;
  }
  return nullptr;
}

bool serves_both(const LayerGroup& group) {
  if (group.streams.size() != (index_stream(group) == nullptr ? 1 : 2)) return false;
  const Stream& stream = group.streams.front();
  return stream.purpose == Purpose::kAttention && group.query.v_dim <= row_floats(stream) &&
         group.query.qk_dim == row_floats(stream) &&
         std::all_of(stream.fields.begin(), stream.fields.end(),
                     [](const Field& field) { return field.heads == 1; });
}

RowTable::RowTable(std::uint64_t num_rows, std::uint64_t row_floats, std::uint32_t seed)
    : num_rows_(num_rows), row_floats_(row_floats), values_(num_rows * row_floats) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& value : values_) value = normal(random);
}

std::span<const float> RowTable::rows(std::uint64_t token, std::uint64_t count) const {
  return std::span(values_).subspan(token % num_rows_ * row_floats_, count * row_floats_);
}

ProfileLoop::ProfileLoop(const ProfileRequest& request, KvCache cache, AttentionRunner runner)
    : request_(request),
      cache_(std::move(cache)),
      runner_(std::move(runner)),
      recorder_(std::make_unique<RunKeeper>(cache_)) {}

Result<std::unique_ptr<ProfileLoop>> ProfileLoop::create(const ProfileRequest& request,
                                                         ModelSpec model) {
  CacheOptions options;
  options.block_size = request.block_size;
  options.layout = request.layout;
  options.num_sequences = request.num_sequences;
  options.context = request.context;
  options.micro_batch = request.micro_batch;
  options.poisons_freed_blocks = false;
  options.keeps_squares = request.arith == Arith::kF16;
  KVARTO_TRY(KvCache cache, KvCache::create(std::move(model), options));
  KVARTO_TRY(AttentionRunner runner, AttentionRunner::create({request.num_threads, false}));
  std::unique_ptr<ProfileLoop> loop(new ProfileLoop(request, std::move(cache), std::move(runner)));
  loop->cache_.set_observer(loop->recorder_.get());
  KVARTO_CHECK_OK(loop->find_streams());
  return loop;
}

Status ProfileLoop::find_streams() {
  for (const std::uint32_t layer : group().layers) {
    LayerStreams streams;
    const bool is_one = serves_both(group());
    KVARTO_TRY(streams.k, cache_.find_stream(layer, is_one ? group().streams.front().name : "k"));
    KVARTO_TRY(streams.v, cache_.find_stream(layer, is_one ? group().streams.front().name : "v"));
    if (const Stream* index = index_stream(group())) {
      KVARTO_TRY(streams.index, cache_.find_stream(layer, index->name));
    }
    layers_.push_back(streams);
  }
  for (std::uint64_t i = 0; i < request_.num_sequences; ++i) {
    sequences_.push_back(*cache_.create_sequence());
  }
  for (const bool is_value : {false, true}) {
    for (const Stream& stream : group().streams) {
      if ((stream.name == "v") != is_value || stream.purpose == Purpose::kIndexer) continue;
      tables_.emplace_back(std::min(kDistinctRows, request_.context), row_floats(stream),
                           is_value ? 'v' : 'k');
      if (stream.lifetime.kind == Lifetime::Kind::kWindow) options_.window = stream.lifetime.tokens;
      if (stream.lifetime.kind == Lifetime::Kind::kChunk) options_.chunk = stream.lifetime.tokens;
      if (stream.access.kind == Access::Kind::kWindow) {
        options_.window = options_.window == 0 ? stream.access.count
                                               : std::min(options_.window, stream.access.count);
      }
    }
  }
  options_.arith = request_.arith;
  options_.query_bits = request_.query_bits;
  const QueryShape& query = group().query;
  q_.resize(request_.num_sequences * query.q_heads * query.qk_dim);
  out_.resize(request_.num_sequences * query.q_heads * query.v_dim);
  std::mt19937 random('q');
  std::normal_distribution<float> normal;
  for (float& value : q_) value = normal(random);
  KVARTO_CHECK_OK(find_index());
  return {};
}

// Queries of the indexer, its rows, and where they lie if they are another layer's.
Status ProfileLoop::find_index() {
  const LayerGroup& selecting = indexing_group();
  const QueryShape& query = selecting.query;
  if (selection_layer(group())) {
    KVARTO_TRY(shared_index_,
               cache_.find_stream(selecting.layers.front(), index_stream(selecting)->name));
  }
  std::mt19937 random('i');
  std::normal_distribution<float> normal;
  if (const Stream* index = index_stream(selecting)) {
    index_tables_.emplace_back(std::min(kDistinctRows, request_.context), row_floats(*index), 'i');
    index_q_.resize(request_.num_sequences * query.index_heads * query.index_dim);
    index_weights_.resize(request_.num_sequences * query.index_heads);
    for (float& value : index_q_) value = normal(random);
    for (float& value : index_weights_) value = normal(random);
  }
  return {};
}

bool ProfileLoop::is_stopping() const {
  return request_.is_stopping != nullptr && request_.is_stopping->load();
}

std::uint64_t ProfileLoop::first_visible(std::uint64_t tokens) const {
  std::uint64_t first = 0;
  if (options_.window != 0 && tokens > options_.window) first = tokens - options_.window;
  if (options_.chunk != 0) first = std::max(first, (tokens - 1) / options_.chunk * options_.chunk);
  return first;
}

Status ProfileLoop::write_rows(StreamId stream, const RowTable& table, std::uint64_t count) {
  for (const SequenceId sequence : sequences_) {
    for (std::uint64_t done = 0; done < count;) {
      const std::uint64_t token = num_tokens_ + done;
      const std::uint64_t part =
          std::min(count - done, table.num_rows() - token % table.num_rows());
      KVARTO_CHECK_OK(cache_.write(sequence, stream, token,
                                   {Codec::kF32, std::as_bytes(table.rows(token, part))}));
      done += part;
    }
  }
  return {};
}

Status ProfileLoop::grow(std::uint64_t count, double& append_s, double& write_s) {
  const double begin = now_s();
  for (const SequenceId sequence : sequences_) {
    KVARTO_TRY(const Grant grant, cache_.append(sequence, count));
    if (grant != Grant::kDone) {
      return fail(ErrorCode::kOutOfMemory,
                  fmt::format("profile: no free block for {} tokens of a planned {}", count,
                              request_.context));
    }
  }
  const double appended = now_s();
  for (const LayerStreams& layer : layers_) {
    KVARTO_CHECK_OK(write_rows(layer.k, tables_[0], count));
    if (!layer.is_one()) KVARTO_CHECK_OK(write_rows(layer.v, tables_[1], count));
    if (layer.index) KVARTO_CHECK_OK(write_rows(*layer.index, index_tables_[0], count));
  }
  const double written = now_s();
  append_s += appended - begin;
  write_s += written - appended;
  if (shared_index_) KVARTO_CHECK_OK(write_rows(*shared_index_, index_tables_[0], count));
  shared_s_ += now_s() - written;
  num_tokens_ += count;
  return {};
}

Status ProfileLoop::prefill(std::uint64_t tokens, PrefillReport& report) {
  const std::uint64_t first_attended = tokens - attended_tokens(tokens);
  while (num_tokens_ < tokens && !(num_tokens_ > 0 && is_stopping())) {
    tell_progress("prefill", num_tokens_, tokens);
    const std::uint64_t begin = num_tokens_;
    KVARTO_CHECK_OK(
        grow(std::min(tokens - begin, request_.micro_batch), report.append_s, report.write_s));
    if (num_tokens_ > first_attended && !is_stopping()) {
      KVARTO_CHECK_OK(attend_prefill(num_tokens_ - std::max(begin, first_attended), report));
    }
  }
  report.tokens = num_tokens_;
  return {};
}

// The last of `tokens` that kPrefillFlop pays for, one at least.
std::uint64_t ProfileLoop::attended_tokens(std::uint64_t tokens) const {
  if (tokens == 0) return 0;
  const QueryShape& query = group().query;
  const double row_flop = 2.0 * query.q_heads * (query.qk_dim + query.v_dim) *
                          static_cast<double>(request_.num_sequences);
  // The last token sees the most rows.
  const double token_flop = row_flop * static_cast<double>(tokens - first_visible(tokens));
  const double affordable = std::min(kPrefillFlop / token_flop, static_cast<double>(tokens));
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(affordable), 1);
}

void ProfileLoop::tell_progress(std::string_view phase, std::uint64_t done,
                                std::uint64_t all) const {
  if (request_.on_progress) request_.on_progress({phase, done, all});
}

Status ProfileLoop::attend_prefill(std::uint64_t count, PrefillReport& report) {
  const QueryShape& query = group().query;
  const std::uint64_t num_queries = count * request_.num_sequences;
  std::vector<float> q;
  q.reserve(count * q_.size());
  for (std::uint64_t i = 0; i < count; ++i) q.insert(q.end(), q_.begin(), q_.end());
  std::vector<float> out(num_queries * query.q_heads * query.v_dim);
  const std::vector<std::uint64_t> q_lens(request_.num_sequences, count);
  KVARTO_TRY(const LayerView layer, view(0));
  KVARTO_CHECK_OK(select_shared(layer.cache(), q_lens));
  const double begin = now_s();
  if (is_selected(0)) {
    if (layers_[0].index) KVARTO_CHECK_OK(select(layer.cache(), *layers_[0].index, q_lens));
    KVARTO_CHECK_OK(attend_selected(layer.cache(), q_lens, q, out));
    report.attention_s += now_s() - begin;
    report.attended_tokens += count;
    return {};
  }
  PrefillCall call;
  call.view = layer.cache();
  call.q_lens = q_lens;
  call.num_q_heads = query.q_heads;
  call.q = q;
  call.options = options_;
  call.out = out;
  KVARTO_CHECK_OK(runner_.prefill(call));
  report.attention_s += now_s() - begin;
  report.attended_tokens += count;
  return {};
}

Result<AttentionReport> ProfileLoop::decode(const CacheView& view, std::size_t layer) {
  DecodeCall call;
  if (layers_[layer].index) {
    const double begin = now_s();
    KVARTO_CHECK_OK(select(view, *layers_[layer].index, {}));
    index_s_ += now_s() - begin;
  }
  if (is_selected(layer)) call.selections = selection_.queries();
  call.view = view;
  call.num_q_heads = group().query.q_heads;
  call.q = q_;
  call.options = options_;
  call.out = out_;
  return runner_.decode(call);
}

Status ProfileLoop::step(ProfileRun& report) {
  StepRecord record;
  const rusage before = usage_now();
  const double begin = now_s();
  if (report.steps.empty()) start_s_ = begin;
  record.begin_s = begin - start_s_;
  selected_ = {};
  index_s_ = shared_s_ = 0;
  KVARTO_CHECK_OK(grow(1, record.append_s, record.write_s));
  KVARTO_TRY(const LayerView first_view, view(0));
  KVARTO_CHECK_OK(select_shared(first_view.cache(), {}));
  const double grown = now_s();
  AttentionReport ran;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    KVARTO_TRY(const LayerView layer_view, view(layer));
    KVARTO_TRY(ran, decode(layer_view.cache(), layer));
  }
  const double end = now_s();
  const rusage after = usage_now();
  record.tokens = num_tokens_;
  record.attention_s = end - grown;
  record.index_s = index_s_;
  record.total_s = end - begin - shared_s_;
  record.counts = recorder_->next_step();
  record.counts.index_rows = selected_.rows_read;
  record.counts.index_bytes = selected_.bytes_read;
  record.minor_faults = static_cast<std::uint64_t>(after.ru_minflt - before.ru_minflt);
  record.major_faults = static_cast<std::uint64_t>(after.ru_majflt - before.ru_majflt);
  record.switches = static_cast<std::uint64_t>(after.ru_nivcsw - before.ru_nivcsw);
  report.steps.push_back(record);
  report.kernel = ran.kernel;
  report.isa = ran.isa;
  report.arith = ran.arith;
  report.query_bits = ran.query_bits;
  report.layout.asked = layout_name(request_.layout);
  report.num_threads = static_cast<std::uint32_t>(ran.num_threads);
  report.verified.front().is_met &=
      ran.layout == layout_name(request_.layout) && ran.num_threads == request_.num_threads &&
      (request_.arith == Arith::kAuto || ran.arith == arith_name(request_.arith));
  return {};
}

Status ProfileLoop::run(ProfileRun& report) {
  const std::uint64_t num_steps =
      request_.num_steps == 0 ? default_steps(request_.context) : request_.num_steps;
  report.warm_up_steps = std::min(kMaxWarmUpSteps, num_steps / 4);
  report.verified.push_back({"kernel used = kernel asked", true, ""});
  HardwareCounters counters;
  KVARTO_CHECK_OK(prefill(request_.context - num_steps, report.prefill));
  runner_.set_observer(recorder_.get());
  recorder_->next_step();
  counters.start();
  while (num_tokens_ < request_.context && !(!report.steps.empty() && is_stopping())) {
    tell_progress("decode", report.steps.size(), num_steps);
    KVARTO_CHECK_OK(step(report));
  }
  counters.stop();
  runner_.set_observer(nullptr);
  report.is_partial = num_tokens_ < request_.context;
  report.warm_up_steps = std::min<std::uint64_t>(report.warm_up_steps, report.steps.size() - 1);
  report.access.counters = counters.values(report.steps.size());
  report.access.counters_note = counters.refusal();
  if (report.access.counters.empty() && report.access.counters_note.empty()) {
    report.access.counters_note = "not available: the kernel never scheduled them";
  }
  report.verified.front().detail = fmt::format(
      "{} on {}, layout {}, arithmetic {}, {} thread{}", report.kernel, report.isa,
      report.layout.asked, report.arith, report.num_threads, report.num_threads == 1 ? "" : "s");
  return {};
}

Result<std::span<const float>> ProfileLoop::decode_again() {
  KVARTO_TRY(const LayerView layer, view(0));
  KVARTO_CHECK_OK(select_shared(layer.cache(), {}));
  KVARTO_CHECK_OK(decode(layer.cache(), 0));
  return std::span<const float>(out_);
}

Result<double> ProfileLoop::empty_call_us() {
  KVARTO_TRY(const LayerView layer, view(0));
  const std::vector<SequenceView> empty(sequences_.size());
  CacheView cache = layer.cache();
  cache.sequences = empty;
  KVARTO_CHECK_OK(select_shared(cache, {}));
  std::vector<double> seconds;
  for (std::uint64_t i = 0; i < kNumEmptyCalls; ++i) {
    const double begin = now_s();
    KVARTO_CHECK_OK(decode(cache, 0));
    seconds.push_back(now_s() - begin);
  }
  return median_s(std::move(seconds)) * 1e6;
}

}  // namespace kvarto
