// The engine that scores checkpoints beside a run, and what it takes of the device meanwhile.
#pragma once

#include <cstddef>

#include "core/dtype.h"
#include "engine/engine.h"
#include "model/model.h"

namespace hone {

// As hone eval has it, but for fewer pages: requests wait their turn, and no answer depends on that.
[[nodiscard]] EngineOptions benchmark_engine(const Model& model);
// Bytes that it takes beside the weights, which are the run's.
[[nodiscard]] std::size_t benchmark_bytes(const Model& model, DType dtype, DeviceKind device);

}  // namespace hone
