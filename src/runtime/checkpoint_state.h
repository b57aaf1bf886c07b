// What a Checkpoint shares with its copies and sessions.

#pragma once

#include <utility>

#include "runtime/decoder.h"
#include "runtime/model_source.h"

namespace kvarto {

// Immutable.
struct CheckpointState {
  CheckpointState(ModelSource files, Decoder read)
      : source(std::move(files)), decoder(std::move(read)) {}
  ModelSource source;
  Decoder decoder;
};

}  // namespace kvarto
