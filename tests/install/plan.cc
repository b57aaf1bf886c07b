// A user's program, with the lines that README.md shows. Its exit code is the verdict.

#include <kvarto/model_file.h>
#include <kvarto/plan.h>

int main() {
  const auto model = kvarto::open_model("llama-3.1-8b");  // a value or an error, never an exception
  if (!model.has_value()) return 1;
  const kvarto::PlanRequest request{.context = 32'768, .num_sequences = 8};
  const auto plan = kvarto::plan(*model, request, {"ideal", "kvarto"});
  if (!plan.has_value()) return 1;
  // 8 sequences x 32768 tokens x 32 layers x 8 heads x 128 elements x K and V x 2 bytes.
  return plan->engines[0].bytes == 34'359'738'368 ? 0 : 1;
}
