// The moving reference model of GRPO (sync_ref_model; TR-DPO, Gorbatovski et al., arXiv 2404.09656).
#pragma once

#include "program/tensor_store.h"

namespace hone {

// Sets reference = alpha x policy + (1 - alpha) x reference elementwise, on the host in f32. The policy must have every
// tensor of the reference.
void mix_reference(const TensorStore& policy, TensorStore& reference, double alpha);

}  // namespace hone
