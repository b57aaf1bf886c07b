// The loop that a profile observes: prefill, then decode steps, over a cache of random rows.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kvarto/profile.h"
#include "profile/hardware_counters.h"
#include "profile/read_map.h"

namespace kvarto {

// Keeps the runs of the last step beside the counts.
class RunKeeper : public CacheRecorder {
 public:
  using CacheRecorder::CacheRecorder;
  void decoded(const CacheView& view, const DecodeEvent& event) override {
    CacheRecorder::decoded(view, event);
    runs_.assign(event.runs.begin(), event.runs.end());
  }
  // Of the last decode: all layers of a step read the same rows.
  [[nodiscard]] const std::vector<ReadRun>& runs() const { return runs_; }

 private:
  std::vector<ReadRun> runs_;
};

// Rows of N(0, 1), repeated again and again.
class RowTable {
 public:
  RowTable(std::uint64_t num_rows, std::uint64_t row_floats, std::uint32_t seed);
  [[nodiscard]] std::uint64_t num_rows() const { return num_rows_; }
  // Rows [token, token + count) of a sequence. Requires: they do not go past a multiple of
  // num_rows().
  [[nodiscard]] std::span<const float> rows(std::uint64_t token, std::uint64_t count) const;

 private:
  std::uint64_t num_rows_;
  std::uint64_t row_floats_;
  std::vector<float> values_;
};

struct LayerStreams {
  StreamId k{};
  StreamId v{};
  std::optional<StreamId> index;  // keys of an indexer that picks the rows
  [[nodiscard]] bool is_one() const { return k == v; }
};

// Whether the rows of the group's first stream, its only one apart from an indexer's, are K and V.
[[nodiscard]] bool serves_both(const LayerGroup& group);
// The keys of the group's indexer; null: none.
[[nodiscard]] const Stream* index_stream(const LayerGroup& group);
// The layer whose selection the group reuses.
[[nodiscard]] std::optional<std::uint32_t> selection_layer(const LayerGroup& group);
// The group whose indexer picks the rows of `group`: itself, or that of the layer whose selection
// it reuses; null: no indexer does.
[[nodiscard]] const LayerGroup* selecting_group(const ModelSpec& model, const LayerGroup& group);

struct ReadBack {
  std::uint64_t num_elements = 0;
  std::uint64_t num_differing = 0;  // from the number that the definition of their type stores
  double rounding = 0;              // largest |stored - handed in| over the largest |handed in|
};

// Not thread-safe; one owner.
class ProfileLoop {
 public:
  // The first group of `model` runs; a second one has the layer whose selection it reuses, of which
  // the indexer alone runs. Errors: as profile().
  [[nodiscard]] static Result<std::unique_ptr<ProfileLoop>> create(const ProfileRequest& request,
                                                                   ModelSpec model);
  // Prefill and steps; fills in what they say of themselves. Errors: those of cache and runner.
  [[nodiscard]] Status run(ProfileRun& report);

  // --- After run() ---
  [[nodiscard]] std::uint64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] KvCache& cache() { return cache_; }
  [[nodiscard]] const RunKeeper& recorder() const { return *recorder_; }
  [[nodiscard]] const std::vector<SequenceId>& sequences() const { return sequences_; }
  [[nodiscard]] const std::vector<LayerStreams>& layers() const { return layers_; }
  [[nodiscard]] const LayerGroup& group() const { return cache_.model().groups.front(); }
  [[nodiscard]] Result<StreamView> index_keys(std::size_t layer) const {
    return cache_.stream_view(*layers_[layer].index);
  }
  // K and V of one layer as the last step read them.
  [[nodiscard]] Result<LayerView> view(std::size_t layer) const {
    return cache_.view(layers_[layer].k, layers_[layer].v, sequences_);
  }
  // Decodes layer 0 once more; the output is valid until the next call.
  [[nodiscard]] Result<std::span<const float>> decode_again();
  // Median of the decode of sequences without tokens, microseconds.
  [[nodiscard]] Result<double> empty_call_us();
  // Rows of layer 0, spread over the visible ones, against what was written.
  [[nodiscard]] Result<ReadBack> read_back() const;
  // First row that a step at the final length sees.
  [[nodiscard]] std::uint64_t first_visible() const { return first_visible(num_tokens_); }

 private:
  ProfileLoop(const ProfileRequest& request, KvCache cache, AttentionRunner runner);
  Status find_streams();
  Status find_index();
  Status prefill(std::uint64_t tokens, PrefillReport& report);
  // Attention of the last `count` tokens.
  Status attend_prefill(std::uint64_t count, PrefillReport& report);
  [[nodiscard]] std::uint64_t attended_tokens(std::uint64_t tokens) const;
  void tell_progress(std::string_view phase, std::uint64_t done, std::uint64_t all) const;
  Status grow(std::uint64_t count, double& append_s, double& write_s);
  Status write_rows(StreamId stream, const RowTable& table, std::uint64_t count);
  Status step(ProfileRun& report);
  Result<AttentionReport> decode(const CacheView& view, std::size_t layer);
  // Rows that an indexer picks for the last `q_lens` tokens of each sequence.
  Status select(const CacheView& view, StreamId index, std::span<const std::uint64_t> q_lens);
  // The same by the layer whose selection is reused, if any; its time is nobody's.
  Status select_shared(const CacheView& view, std::span<const std::uint64_t> q_lens);
  [[nodiscard]] bool is_selected(std::size_t layer) const {
    return layers_[layer].index.has_value() || shared_index_.has_value();
  }
  [[nodiscard]] const LayerGroup& indexing_group() const { return cache_.model().groups.back(); }
  Status attend_selected(const CacheView& view, std::span<const std::uint64_t> q_lens,
                         std::span<const float> q, std::span<float> out);
  [[nodiscard]] bool is_stopping() const;
  // Of the last of `tokens`, more than 0.
  [[nodiscard]] std::uint64_t first_visible(std::uint64_t tokens) const;

  const ProfileRequest& request_;
  KvCache cache_;
  AttentionRunner runner_;
  std::unique_ptr<RunKeeper> recorder_;
  std::vector<LayerStreams> layers_;
  std::vector<SequenceId> sequences_;
  std::vector<RowTable> tables_;        // of K and of V, or of the rows that are both
  std::vector<RowTable> index_tables_;  // one where there is an indexer
  std::vector<float> index_q_;
  std::vector<float> index_weights_;
  std::optional<StreamId> shared_index_;  // of the layer whose selection is reused
  Selection selection_;
  SelectReport selected_;  // sums since the step began, as are these:
  double index_s_ = 0;
  double shared_s_ = 0;  // what the layer took whose selection is reused
  AttentionOptions options_;
  std::vector<float> q_;
  std::vector<float> out_;
  std::uint64_t num_tokens_ = 0;
  double start_s_ = 0;
};

}  // namespace kvarto
