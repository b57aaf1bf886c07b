#include <nlohmann/json.hpp>

#include "plan_report.h"

namespace kvarto::cli {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json engine_json(const EngineReport& engine) {
  Json ledger = Json::array();
  for (const LedgerEntry& entry : engine.plan.ledger) {
    ledger.push_back({{"cause", cause_name(entry.cause)},
                      {"stream", entry.stream},
                      {"layers", entry.layers},
                      {"bytes", entry.bytes},
                      {"architecture", entry.architecture}});
  }
  Json json = {{"engine", engine.plan.engine},
               {"profile", engine.plan.profile},
               {"bytes", engine.plan.bytes},
               {"tokens", or_null(engine.plan.tokens)},
               {"blocks", or_null(engine.plan.blocks)},
               {"max_concurrency", or_null(engine.plan.max_concurrency)},
               {"printed", engine.plan.printed},
               {"ledger", ledger},
               {"notes", engine.plan.notes}};
  if (engine.fit.has_value()) {
    json["largest_context"] = or_null(engine.fit->largest_context);
    json["largest_num_sequences"] = or_null(engine.fit->largest_num_sequences);
  }
  json["smallest_device"] =
      engine.smallest_device.has_value() ? Json(engine.smallest_device->name) : Json(nullptr);
  return json;
}

Json floor_json(const TimeFloor& floor) {
  return {{"seconds", floor.seconds()},
          {"memory_s", floor.memory_s},
          {"arithmetic_s", floor.arithmetic_s},
          {"binds", floor.is_memory_bound() ? "memory" : "arithmetic"}};
}

Json device_json(const HardwareSpec& device, const StepCost& step) {
  return {{"name", device.name},
          {"memory_bytes", device.memory_bytes},
          {"bandwidth_bytes_per_s", device.bandwidth_bytes_per_s},
          {"flop_per_s_16bit", device.flop_per_s_16bit},
          {"decode_floor", floor_json(decode_floor(step, device))},
          {"prefill_floor", floor_json(prefill_floor(step, device))}};
}

Json what_if_json(const std::vector<WhatIf>& rows) {
  Json list = Json::array();
  for (const WhatIf& row : rows) {
    list.push_back({{"architecture", row.architecture},
                    {"k_bytes", row.k_bytes},
                    {"v_bytes", row.v_bytes},
                    {"other_bytes", row.other_bytes},
                    {"total_bytes", row.total_bytes},
                    {"saving_against_mha", row.saving_against_mha},
                    {"read_bytes_per_step", row.read_bytes_per_step},
                    {"notes", row.notes}});
  }
  return list;
}

Json reservation_json(const Reservation& reservation) {
  return {{"tokens", reservation.tokens},
          {"reserved_tokens", reservation.reserved_tokens},
          {"bytes", reservation.bytes},
          {"wasted_bytes", reservation.wasted_bytes},
          {"utilisation", reservation.utilisation}};
}

Json request_json(const PlanReport& report) {
  const PlanRequest& request = report.request;
  return {{"sequences", request.num_sequences},
          {"cache_type_k", request.types.key},
          {"cache_type_v", request.types.value},
          {"index_type", request.types.index},
          {"types_by_layer", report.types_by_layer},
          {"tensor_parallel", request.tensor_parallel},
          {"block_size", request.block_size},
          {"micro_batch", request.micro_batch},
          {"kv_memory_bytes", request.kv_memory_bytes},
          {"is_default_context", report.is_default_context}};
}

}  // namespace

void print_plan_json(const PlanReport& report, Output& out) {
  Json engines = Json::array();
  for (const EngineReport& engine : report.engines) engines.push_back(engine_json(engine));
  Json json = {{"schema", "kvarto.plan/1"},
               {"model",
                {{"name", report.model.name},
                 {"architectures", architecture_names(report.model)},
                 {"layers", report.model.num_layers},
                 {"model_type", report.model.model_type},
                 {"max_context", report.model.max_context}}},
               {"sequence",
                {{"fixed_bytes", report.sequence.fixed_bytes},
                 {"slope_bytes_per_token", report.sequence.slope_bytes_per_token},
                 {"context", report.sequence.context},
                 {"bytes", report.sequence.bytes}}},
               {"engines", engines},
               {"request", request_json(report)},
               {"step",
                {{"read_bytes", report.step.read_bytes},
                 {"decode_flop", report.step.decode_flop},
                 {"prefill_flop", report.step.prefill_flop},
                 {"prefill_read_bytes", report.step.prefill_read_bytes}}}};
  if (!report.refusals.empty()) {
    Json refusals = Json::array();
    for (const EngineRefusal& refusal : report.refusals) {
      refusals.push_back({{"engine", refusal.engine}, {"error", refusal.error.message}});
    }
    json["refusals"] = refusals;
  }
  if (report.device.has_value()) json["device"] = device_json(*report.device, report.step);
  if (!report.what_if.empty()) json["what_if"] = what_if_json(report.what_if);
  if (report.reservation.has_value()) {
    json["reservation"] = {{"block_size", report.reservation->block_size},
                           {"contiguous", reservation_json(report.reservation->contiguous)},
                           {"paged", reservation_json(report.reservation->paged)}};
  }
  json["notes"] = report.notes;
  out.verbatim(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace kvarto::cli
