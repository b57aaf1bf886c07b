#include <utility>

#include "kvarto/runtime.h"
#include "runtime/checkpoint_state.h"
#include "runtime/decoder_reader.h"

namespace kvarto {

Checkpoint::Checkpoint(std::shared_ptr<const CheckpointState> state) : state_(std::move(state)) {}

Result<Checkpoint> Checkpoint::open(std::string_view path) {
  KVARTO_TRY(ModelSource source, ModelSource::open(path));
  KVARTO_TRY(Decoder decoder, read_decoder(source));
  return Checkpoint(std::make_shared<const CheckpointState>(std::move(source), std::move(decoder)));
}

const ModelSpec& Checkpoint::model() const { return state_->source.spec(); }
std::string_view Checkpoint::family() const { return state_->decoder.family; }
std::uint32_t Checkpoint::vocab_size() const { return state_->decoder.vocab_size; }
std::uint64_t Checkpoint::weight_bytes() const { return state_->decoder.weight_bytes; }
const std::vector<std::string>& Checkpoint::files() const { return state_->source.tensors().files; }

}  // namespace kvarto
