// The cache against a naive one that keeps every sequence's rows in maps: random models, random
// schedules of append, write, fork, truncate, snapshot, trim, keep and free. Whatever a live
// sequence can read is what it wrote itself or inherited; nothing of another ever shows.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <optional>

#include "cache_models.h"

namespace kvarto {
namespace {

using rc::gen::inRange;
using Rows = std::map<std::uint64_t, float>;

struct NaiveSequence {
  SequenceId id{};
  std::uint64_t num_tokens = 0;
  std::vector<Rows> rows;              // one map a stream; unwritten rows are absent
  std::vector<std::uint64_t> removed;  // rows that keep_rows took, one number a stream
  std::map<std::uint64_t, std::vector<Rows>> snapshots;
};

std::uint64_t born(const Stream& stream, std::uint64_t tokens) {
  if (stream.lifetime.kind == Lifetime::Kind::kConstant) return tokens > 0 ? 1 : 0;
  return tokens / stream.tokens_per_row;
}

// First row that the last of `tokens` tokens sees, row by row from the words of the lifetimes.
std::uint64_t first_visible(const Stream& stream, std::uint64_t tokens) {
  const std::uint64_t rows = born(stream, tokens);
  std::uint64_t first = 0;
  while (first < rows) {
    const std::uint64_t newer_rows = rows - 1 - first;
    const std::uint64_t life = stream.lifetime.tokens;
    bool is_visible = true;
    switch (stream.lifetime.kind) {
      case Lifetime::Kind::kWindow:
        is_visible = newer_rows < life;
        break;
      case Lifetime::Kind::kTtl:
        is_visible = newer_rows * stream.tokens_per_row < life;
        break;
      case Lifetime::Kind::kChunk:
        is_visible = first / life == (tokens - 1) / life;
        break;
      default:
        break;
    }
    if (is_visible) break;
    ++first;
  }
  return first;
}

class Schedule {
 public:
  Schedule(ModelSpec model, const CacheOptions& options)
      : streams_(model.groups[0].streams), cache_(*KvCache::create(std::move(model), options)) {}

  void step() {
    const int kind = *inRange(0, 16);
    if (sequences_.empty() || kind == 0) return create();
    const std::size_t index = *inRange<std::size_t>(0, sequences_.size());
    NaiveSequence& sequence = sequences_[index];
    switch (kind) {
      case 1:
        return free(index);
      case 2:
      case 3:
        return fork(index);
      case 4:
      case 5:
        return truncate(sequence);
      case 6:
        RC_ASSERT(cache_.trim(sequence.id).has_value());
        return;
      case 7:
        return snapshot(sequence);
      case 8:
        return keep(sequence);
      default:
        return append(sequence);
    }
  }

  void check() const {
    RC_ASSERT(cache_.verify().has_value());
    for (const NaiveSequence& sequence : sequences_) {
      RC_ASSERT(*cache_.num_tokens(sequence.id) == sequence.num_tokens);
      for (std::size_t s = 0; s < streams_.size(); ++s) check_rows(sequence, s);
    }
  }

 private:
  void create() {
    const auto id = cache_.create_sequence();
    RC_ASSERT(id.has_value() == (sequences_.size() < cache_.options().num_sequences));
    if (!id) return;
    NaiveSequence sequence;
    sequence.id = *id;
    sequence.rows.resize(streams_.size());
    sequence.removed.resize(streams_.size());
    sequences_.push_back(sequence);
  }

  void free(std::size_t index) {
    const SequenceId id = sequences_[index].id;
    RC_ASSERT(cache_.free_sequence(id).has_value());
    RC_ASSERT(!cache_.num_tokens(id).has_value());
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void append(NaiveSequence& sequence) {
    const std::uint64_t room = cache_.options().context - sequence.num_tokens;
    const std::uint64_t count = *inRange<std::uint64_t>(1, cache_.options().micro_batch + 1);
    const auto grant = cache_.append(sequence.id, count);
    if (count > room) {
      RC_ASSERT(!grant.has_value());
      return;
    }
    if (!grant.has_value()) {
      RC_ASSERT(needs_keep(sequence, count));
      return;
    }
    if (*grant == Grant::kNoFreeBlock) {
      RC_ASSERT(!cache_.options().blocks_per_track.empty());
      return;
    }
    const std::uint64_t before = sequence.num_tokens;
    sequence.num_tokens += count;
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      const bool is_state = streams_[s].lifetime.kind == Lifetime::Kind::kConstant;
      const std::uint64_t first = is_state ? 0 : born(streams_[s], before) - sequence.removed[s];
      const std::uint64_t end = born(streams_[s], sequence.num_tokens) - sequence.removed[s];
      for (std::uint64_t row = first; row < end; ++row) {
        if (*inRange(0, 4) == 0) continue;  // some rows are never written
        write(sequence, s, row);
      }
    }
  }

  bool needs_keep(const NaiveSequence& sequence, std::uint64_t count) const {
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      if (streams_[s].lifetime.kind != Lifetime::Kind::kKept) continue;
      const std::uint64_t rows =
          born(streams_[s], sequence.num_tokens + count) - sequence.removed[s];
      if (rows > streams_[s].lifetime.tokens) return true;
    }
    return false;
  }

  void write(NaiveSequence& sequence, std::size_t s, std::uint64_t row) {
    const float stamp = next_stamp_++;
    const std::vector<float> values = {stamp, -stamp};
    const auto status =
        cache_.write(sequence.id, StreamId{static_cast<std::uint32_t>(s)}, row, source_of(values));
    RC_ASSERT(status.has_value());
    sequence.rows[s][row] = stamp;
  }

  bool is_allowed(const NaiveSequence& sequence, std::uint64_t length) const {
    if (length == 0 || length == sequence.num_tokens) return true;
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      const Stream& stream = streams_[s];
      if (sequence.removed[s] > 0) return false;
      const auto view = *cache_.sequence_view(sequence.id, StreamId{static_cast<std::uint32_t>(s)});
      const std::uint64_t rows_per_block = cache_.tracks()[track_of(s)].rows_per_block;
      const std::uint64_t first = first_visible(stream, length);
      if (first < born(stream, length) && stream.lifetime.kind != Lifetime::Kind::kConstant &&
          first < view.first_block * rows_per_block) {
        return false;
      }
      if (stream.truncate.kind == Truncate::Kind::kBoundary &&
          length % stream.truncate.tokens != 0) {
        return false;
      }
      if (stream.truncate.kind == Truncate::Kind::kSnapshot &&
          sequence.snapshots.count(length) == 0) {
        return false;
      }
    }
    return true;
  }

  std::size_t track_of(std::size_t s) const {
    for (std::size_t t = 0; t < cache_.tracks().size(); ++t) {
      for (const TrackStream& part : cache_.tracks()[t].streams) {
        if (part.stream == s) return t;
      }
    }
    return 0;
  }

  void cut(NaiveSequence& sequence, std::uint64_t length) const {
    if (length == sequence.num_tokens) return;
    const auto snapshot = sequence.snapshots.find(length);
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      Rows& rows = sequence.rows[s];
      if (streams_[s].lifetime.kind == Lifetime::Kind::kConstant) {
        rows = length > 0 && snapshot != sequence.snapshots.end() ? snapshot->second[s] : Rows();
      } else {
        rows.erase(rows.lower_bound(born(streams_[s], length)), rows.end());
      }
      if (length == 0) sequence.removed[s] = 0;
    }
    sequence.num_tokens = length;
    sequence.snapshots.erase(sequence.snapshots.upper_bound(length), sequence.snapshots.end());
  }

  void truncate(NaiveSequence& sequence) {
    const std::uint64_t length = *inRange<std::uint64_t>(0, sequence.num_tokens + 2);
    const bool is_expected = length <= sequence.num_tokens && is_allowed(sequence, length);
    RC_ASSERT(cache_.truncate(sequence.id, length).has_value() == is_expected);
    if (is_expected) cut(sequence, length);
  }

  void fork(std::size_t index) {
    const bool is_whole = *rc::gen::arbitrary<bool>();
    const std::uint64_t length = is_whole
                                     ? sequences_[index].num_tokens
                                     : *inRange<std::uint64_t>(0, sequences_[index].num_tokens + 1);
    const bool is_expected = is_allowed(sequences_[index], length);
    const auto child = cache_.fork(sequences_[index].id, length);
    RC_ASSERT(child.has_value() == is_expected);
    if (!is_expected) return;
    RC_ASSERT(child->has_value() == (sequences_.size() < cache_.options().num_sequences));
    if (!child->has_value()) return;
    NaiveSequence copy = sequences_[index];
    copy.id = **child;
    cut(copy, length);
    sequences_.push_back(copy);
  }

  void snapshot(NaiveSequence& sequence) {
    const bool has_room = cache_.options().num_snapshots > 0;
    RC_ASSERT(cache_.take_snapshot(sequence.id).has_value() == has_room);
    if (!has_room) return;
    sequence.snapshots[sequence.num_tokens] = sequence.rows;
    if (sequence.snapshots.size() > cache_.options().num_snapshots) {
      sequence.snapshots.erase(sequence.snapshots.begin());
    }
  }

  void keep(NaiveSequence& sequence) {
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      if (streams_[s].lifetime.kind != Lifetime::Kind::kKept) continue;
      const std::uint64_t held = born(streams_[s], sequence.num_tokens) - sequence.removed[s];
      std::vector<std::uint64_t> rows;
      for (std::uint64_t row = 0; row < held; ++row) {
        if (rows.size() < streams_[s].lifetime.tokens && *inRange(0, 3) != 0) rows.push_back(row);
      }
      const auto grant =
          cache_.keep_rows(sequence.id, StreamId{static_cast<std::uint32_t>(s)}, rows);
      RC_ASSERT(grant.has_value());
      if (*grant == Grant::kNoFreeBlock) continue;
      // All streams of the track lose the same rows; a model has one kept stream here.
      Rows kept;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto found = sequence.rows[s].find(rows[i]);
        if (found != sequence.rows[s].end()) kept[i] = found->second;
      }
      sequence.rows[s] = kept;
      sequence.removed[s] += held - rows.size();
    }
  }

  void check_rows(const NaiveSequence& sequence, std::size_t s) const {
    const StreamId id{static_cast<std::uint32_t>(s)};
    const Stream& stream = streams_[s];
    const std::uint64_t end = born(stream, sequence.num_tokens) - sequence.removed[s];
    std::uint64_t first = 0;
    if (sequence.removed[s] == 0) first = first_visible(stream, sequence.num_tokens);
    for (std::uint64_t row = first; row < end; ++row) {
      std::vector<float> values(2);
      RC_ASSERT(cache_.read(sequence.id, id, row, values).has_value());
      const auto found = sequence.rows[s].find(row);
      const float stamp = found == sequence.rows[s].end() ? 0 : found->second;
      RC_ASSERT(values[0] == stamp);
      RC_ASSERT(values[1] == -stamp);
    }
  }

  std::vector<Stream> streams_;
  KvCache cache_;
  std::vector<NaiveSequence> sequences_;
  float next_stamp_ = 1;
};

std::vector<Stream> any_streams() {
  using Kind = Lifetime::Kind;
  const auto life = [] { return *inRange<std::uint64_t>(1, 20); };
  std::vector<Stream> all = {
      plain_stream("never"),
      plain_stream("window", {Kind::kWindow, life()}),
      plain_stream("chunk", {Kind::kChunk, life()}),
      plain_stream("ttl", {Kind::kTtl, life()}, *rc::gen::element<std::uint64_t>(1, 3, 4)),
      plain_stream("compressed", {}, 4),
      plain_stream("compressed_window", {Kind::kWindow, life()}, 3),
      plain_stream("kept", {Kind::kKept, life()}),
      state_stream("any_state", {Truncate::Kind::kBoundary, *inRange<std::uint64_t>(1, 4)}),
      state_stream("state", {Truncate::Kind::kSnapshot, 0}),
  };
  std::vector<Stream> chosen;
  for (const Stream& stream : all) {
    if (*inRange(0, 3) == 0) chosen.push_back(stream);
  }
  if (chosen.empty()) chosen.push_back(all[0]);
  return chosen;
}

CacheOptions any_options(const ModelSpec& model) {
  CacheOptions options;
  options.block_size = *inRange<std::uint64_t>(1, 9);
  options.layout = *rc::gen::element(Layout::kGeneric, Layout::kHardware);
  options.num_sequences = *inRange<std::uint64_t>(1, 6);
  options.context = *inRange<std::uint64_t>(1, 60);
  options.micro_batch = *inRange<std::uint64_t>(1, 12);
  options.num_snapshots = *inRange<std::uint64_t>(0, 3);
  options.poisons_freed_blocks = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) {
    // Scarce: some appends must be refused.
    const std::size_t num_tracks = make_tracks(model, options.block_size)->size();
    for (std::size_t i = 0; i < num_tracks; ++i) {
      options.blocks_per_track.push_back(*inRange<std::uint64_t>(0, 20));
    }
  }
  return options;
}

RC_GTEST_PROP(KvCacheProperty, AgreesWithANaiveCacheUnderAnySchedule, ()) {
  const ModelSpec model = model_of(any_streams());
  Schedule schedule(model, any_options(model));
  const int steps = *inRange(1, 120);
  for (int i = 0; i < steps; ++i) {
    schedule.step();
    if (i % 8 == 7) schedule.check();
  }
  schedule.check();
}

// One sequence alone holds what the planner says, token by token.
RC_GTEST_PROP(KvCacheProperty, HoldsAsManyBlocksAsTheTracksSay, ()) {
  std::vector<Stream> streams = any_streams();
  std::erase_if(streams, [](const Stream& s) { return s.lifetime.kind == Lifetime::Kind::kKept; });
  if (streams.empty()) return;
  const ModelSpec model = model_of(streams);
  CacheOptions options = any_options(model);
  options.blocks_per_track.clear();
  KvCache cache = *KvCache::create(model, options);
  const SequenceId sequence = *cache.create_sequence();
  for (std::uint64_t tokens = 0; tokens < options.context;) {
    const std::uint64_t count =
        std::min(options.context - tokens, *inRange<std::uint64_t>(1, options.micro_batch + 1));
    RC_ASSERT(*cache.append(sequence, count) == Grant::kDone);
    tokens += count;
    if (count > 1) RC_ASSERT(cache.trim(sequence).has_value());
    const std::vector<std::uint64_t> blocks = *cache.num_blocks(sequence);
    for (std::size_t t = 0; t < blocks.size(); ++t) {
      RC_ASSERT(blocks[t] == resident_blocks(cache.tracks()[t], tokens));
    }
  }
}

}  // namespace
}  // namespace kvarto
