// Engine `ideal`: exactly the rows that must be held, and nothing else. The floor of all engines.
//
// Tensor parallel: a head-sharded field has ceil(heads / ranks) heads on a rank, a replicated
// stream is whole; what a rank holds beyond its share is replication.

#include <array>
#include <utility>

#include "plan/engine.h"
#include "plan/owned_stream.h"

namespace kvarto {
namespace {

Status add_groups(Ledger& ledger, const EngineCase& engine_case, std::span<const LayerGroup> groups,
                  bool is_draft) {
  const PlanRequest& request = engine_case.request;
  KVARTO_TRY(std::vector<OwnedStream> streams, owned_streams(groups, request.tensor_parallel));
  for (OwnedStream& owned : streams) {
    const bool is_constant = owned.stream->lifetime.kind == Lifetime::Kind::kConstant;
    if (is_draft) owned.group_index += engine_case.model.groups.size();
    const IdealRows rows = ideal_rows(*owned.stream, request);
    RowCount count{.rows = rows.live,
                   .num_sequences = request.num_sequences,
                   .num_ranks = request.tensor_parallel};
    // Context parallelism has divided the rows already, but every rank holds the whole state.
    if (is_constant) count.num_ranks *= request.context_parallel;
    KVARTO_CHECK_OK(
        add_rows(ledger, owned, count,
                 is_draft ? only_cause(Cause::kDraft) : row_causes(owned.stream->purpose)));
    count.rows = rows.in_flight;
    KVARTO_CHECK_OK(
        add_rows(ledger, owned, count,
                 only_cause(is_constant && !is_draft ? Cause::kSnapshots : Cause::kDraft)));
  }
  return {};
}

Result<EnginePlan> plan_ideal(const EngineCase& engine_case) {
  Ledger ledger;
  KVARTO_CHECK_OK(add_groups(ledger, engine_case, engine_case.model.groups, false));
  KVARTO_CHECK_OK(add_groups(ledger, engine_case, engine_case.draft_groups, true));
  EnginePlan plan;
  KVARTO_CHECK_OK(std::move(ledger).finish(plan));
  set_concurrency(plan, engine_case.request);
  return plan;
}

constexpr std::array<std::string_view, 1> kProfiles = {"1"};

}  // namespace

const Engine kIdealEngine = {"ideal", kProfiles, &plan_ideal};

}  // namespace kvarto
