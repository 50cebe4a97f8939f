// The engine that scores checkpoints during a training run, and the device memory that it needs.
#pragma once

#include <cstddef>

#include "core/dtype.h"
#include "engine/engine.h"
#include "model/model.h"

namespace hone {

// Returns the engine options of `hone eval` with fewer KV-cache blocks. Requests wait longer; their answers do not
// change.
[[nodiscard]] EngineOptions benchmark_engine(const Model& model);
// Returns the device bytes of this engine, without the weights, which it shares with the run.
[[nodiscard]] std::size_t benchmark_bytes(const Model& model, DType dtype, DeviceKind device);

}  // namespace hone
