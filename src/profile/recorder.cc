// CacheRecorder: lifetimes and counts from the events of a cache and a runner.

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "attention/call_check.h"
#include "kvarto/profile.h"

namespace kvarto {
namespace {

// One block of a track, from its birth on; what is over is added to the track's sums.
struct BlockLife {
  bool is_alive = false;
  bool was_alive = false;
  bool is_read = false;
  std::uint64_t birth_step = 0;
  std::uint64_t last_step = 0;  // of reading, or of birth
};

struct TrackSums {
  TrackLife life;
  std::vector<BlockLife> blocks;  // by id
  double age_sum = 0;
  double idle_sum = 0;
};

// Adds a life that ends, or is looked at, in step `now`.
void add_life(const BlockLife& block, std::uint64_t now, TrackSums& sums) {
  const std::uint64_t age = now - block.birth_step;
  const std::uint64_t idle = now - block.last_step;
  sums.age_sum += static_cast<double>(age);
  sums.idle_sum += static_cast<double>(idle);
  sums.life.max_age = std::max(sums.life.max_age, age);
  sums.life.max_idle = std::max(sums.life.max_idle, idle);
  if (!block.is_read) ++sums.life.never_read;
}

}  // namespace

struct CacheRecorder::State {
  std::vector<TrackSums> tracks;
  std::unordered_map<const std::byte*, std::uint32_t> track_of;  // by the base of a stream
  std::uint64_t step = 0;
  bool has_begun = false;  // whether anything happened since next_step()
  StepCounts counts;
};

CacheRecorder::CacheRecorder(const KvCache& cache) : state_(std::make_unique<State>()) {
  const std::vector<Track>& tracks = cache.tracks();
  for (std::uint32_t t = 0; t < tracks.size(); ++t) {
    state_->tracks.emplace_back();
    state_->tracks.back().life.track = tracks[t];
    for (const TrackStream& stream : tracks[t].streams) {
      const LayerGroup& group = cache.model().groups[stream.group];
      for (const std::uint32_t layer : group.layers) {
        const auto id = cache.find_stream(layer, group.streams[stream.stream].name);
        if (!id.has_value()) continue;
        if (const auto view = cache.field_view(*id, 0)) state_->track_of[view->base] = t;
      }
    }
  }
}

CacheRecorder::~CacheRecorder() = default;

StepCounts CacheRecorder::next_step() {
  for (TrackSums& sums : state_->tracks) sums.life.timeline.push_back(sums.life.resident);
  ++state_->step;
  state_->has_begun = false;
  return std::exchange(state_->counts, {});
}

void CacheRecorder::block_taken(std::uint32_t track, std::uint32_t block) {
  state_->has_begun = true;
  TrackSums& sums = state_->tracks[track];
  if (block >= sums.blocks.size()) sums.blocks.resize(std::size_t{block} + 1);
  BlockLife& life = sums.blocks[block];
  if (life.was_alive) ++sums.life.reused;
  life = {true, true, false, state_->step, state_->step};
  ++sums.life.births;
  ++sums.life.resident;
  ++state_->counts.blocks_taken;
}

void CacheRecorder::block_freed(std::uint32_t track, std::uint32_t block) {
  state_->has_begun = true;
  TrackSums& sums = state_->tracks[track];
  // A block taken before the recorder began to observe.
  if (block >= sums.blocks.size() || !sums.blocks[block].is_alive) return;
  add_life(sums.blocks[block], state_->step, sums);
  sums.blocks[block].is_alive = false;
  ++sums.life.deaths;
  --sums.life.resident;
  ++state_->counts.blocks_freed;
}

void CacheRecorder::decoded(const CacheView& view, const DecodeEvent& event) {
  State& state = *state_;
  state.has_begun = true;
  state.counts.plan_s += event.plan_s;
  state.counts.pass_s += event.pass_s;
  state.counts.merge_s += event.merge_s;
  const auto track = state.track_of.find(view.k.base);
  const RowPairBytes bytes = row_pair_bytes(view);
  for (const ReadRun& run : event.runs) {
    state.counts.rows_read += run.num_rows;
    state.counts.k_bytes += run.num_rows * bytes.k;
    state.counts.v_bytes += run.num_rows * bytes.v;
    if (track == state.track_of.end() || run.num_rows == 0) continue;
    TrackSums& sums = state.tracks[track->second];
    const SequenceView& sequence = view.sequences[run.sequence];
    const std::uint64_t first = run.first_row / view.rows_per_block;
    const std::uint64_t last = (run.first_row + run.num_rows - 1) / view.rows_per_block;
    for (std::uint64_t i = first; i <= last; ++i) {
      const std::uint32_t id = sequence.block_table[i - sequence.first_block];
      if (id >= sums.blocks.size() || !sums.blocks[id].is_alive) continue;
      BlockLife& block = sums.blocks[id];
      if (block.is_read && block.last_step != state.step) {
        ++sums.life.reuse_gaps[state.step - block.last_step];
      }
      block.is_read = true;
      block.last_step = state.step;
    }
  }
}

std::vector<TrackLife> CacheRecorder::lifetimes() const {
  std::vector<TrackLife> lives;
  const std::uint64_t now =
      state_->has_begun || state_->step == 0 ? state_->step : state_->step - 1;
  for (TrackSums sums : state_->tracks) {
    for (const BlockLife& block : sums.blocks) {
      if (block.is_alive) add_life(block, now, sums);
    }
    if (sums.life.births > 0) {
      sums.life.mean_age = sums.age_sum / static_cast<double>(sums.life.births);
      sums.life.mean_idle = sums.idle_sum / static_cast<double>(sums.life.births);
    }
    lives.push_back(std::move(sums.life));
  }
  return lives;
}

}  // namespace kvarto
