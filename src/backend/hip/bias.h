// Rows of a bias, for GEMMs of a library that adds none.
#pragma once

#include "backend/gemm.h"
#include "backend/gpu/runtime.h"

namespace hone {

// Writes args.bias to every row of args.c, which has its dtype.
void write_bias_rows(const GemmArgs& args, cudaStream_t stream);

}  // namespace hone
