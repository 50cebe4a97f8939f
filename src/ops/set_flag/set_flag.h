// Sets a flag in device memory, by which later nodes or runs know that this point has been reached.
#pragma once

#include "program/program.h"

namespace hone {

// Sets flag (f32[1], in place) to 1 and returns it. Throws Error for another type.
Tensor set_flag(Tensor flag);

}  // namespace hone
