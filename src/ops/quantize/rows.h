// Quantization of bf16 rows on the CPU, which quantize and the operations that it is fused with share.
#pragma once

#include <cstdint>

#include "ops/quantize/views.h"

namespace hone {

// Quantizes rows [0, used) of x [capacity, k]; the rows after them become 0.
void quantize_rows(const BFloat16* x, std::int64_t used, const QuantizedViews& to);

}  // namespace hone
