// The stopwatch of a GPU: events on its stream.
#pragma once

#include <memory>

#include "backend/stopwatch.h"

namespace hone {

[[nodiscard]] std::unique_ptr<Stopwatch> make_cuda_stopwatch(Device& device);

}  // namespace hone
