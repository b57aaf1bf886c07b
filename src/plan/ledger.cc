#include "plan/ledger.h"

#include <algorithm>
#include <string>

namespace kvarto {

std::string_view cause_name(Cause cause) {
  switch (cause) {
    case Cause::kPayload:
      return "payload";
    case Cause::kScales:
      return "scales";
    case Cause::kPadding:
      return "padding";
    case Cause::kBlockRounding:
      return "block_rounding";
    case Cause::kCellPadding:
      return "cell_padding";
    case Cause::kWindowSlack:
      return "window_slack";
    case Cause::kPageUnification:
      return "page_unification";
    case Cause::kLayerGrouping:
      return "layer_grouping";
    case Cause::kIndexer:
      return "indexer";
    case Cause::kState:
      return "state";
    case Cause::kSnapshots:
      return "snapshots";
    case Cause::kReplication:
      return "replication";
    case Cause::kDraft:
      return "draft";
    case Cause::kSpare:
      return "spare";
    case Cause::kMetadata:
      return "metadata";
    case Cause::kMask:
      return "mask";
    case Cause::kWorkspace:
      return "workspace";
  }
  return "";
}

void Ledger::add(Cause cause, const LedgerSubject& subject, std::uint64_t bytes) {
  if (bytes == 0) return;
  total_.add(bytes);
  // One subject's bytes come one after the other, so that only the newest lines can be its own.
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    if (line->subject.group != subject.group) break;
    if (line->cause == cause && line->subject.stream == subject.stream &&
        line->subject.architecture == subject.architecture) {
      line->bytes += bytes;  // cannot wrap unnoticed: the total would have wrapped before
      return;
    }
  }
  lines_.push_back({cause, subject, bytes});
}

void Ledger::add_share(Cause cause, const LedgerSubject& subject, const RankBytes& bytes) {
  const std::uint64_t own = std::min(bytes.on_rank, bytes.whole / bytes.ranks);
  add(cause, subject, own);
  add(Cause::kReplication, subject, bytes.on_rank - own);
}

Status Ledger::finish(EnginePlan& plan) && {
  if (total_.has_overflow()) {
    return fail(ErrorCode::kInvalidArgument, "the bytes of the plan overflow 64 bits");
  }
  plan.bytes = total_.total();
  plan.ledger.clear();
  for (const Line& line : lines_) {
    const auto same =
        std::find_if(plan.ledger.begin(), plan.ledger.end(), [&](const LedgerEntry& entry) {
          return entry.cause == line.cause && entry.stream == line.subject.stream &&
                 entry.architecture == line.subject.architecture;
        });
    if (same != plan.ledger.end()) {
      same->layers += line.subject.layers;
      same->bytes += line.bytes;
    } else {
      plan.ledger.push_back({.cause = line.cause,
                             .stream = std::string(line.subject.stream),
                             .architecture = std::string(line.subject.architecture),
                             .layers = line.subject.layers,
                             .bytes = line.bytes});
    }
  }
  return {};
}

}  // namespace kvarto
