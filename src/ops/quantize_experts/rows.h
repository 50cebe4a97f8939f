// Quantization of the rows of experts on the CPU, which quantize_experts and the operations that it is fused with
// share.
#pragma once

#include <cstdint>

#include "program/kernel.h"

namespace hone {

// Writes the outputs of a call, which begin with those of quantize_experts, for rows [rows, k] and start [experts + 1].
void quantize_expert_rows(const BFloat16* from, const std::int32_t* start, const KernelCall& call);

}  // namespace hone
