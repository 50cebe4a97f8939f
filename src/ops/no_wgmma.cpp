// Replaces the kernels for Hopper's tensor cores in a build for HIP: none of them takes a product.
#include "ops/fp8_linear/fp8_cuda.h"
#include "ops/grouped_linear/wgmma_cuda.h"
#include "ops/linear/few_rows_cuda.h"
#include "ops/linear_swiglu/few_rows_cuda.h"

namespace hone {

bool launch_few_rows(const GemmArgs&, bool, cudaStream_t) { return false; }
bool launch_few_rows_swiglu(const KernelCall&) { return false; }
bool launch_fp8_rows(const Fp8Product&, bool, cudaStream_t) { return false; }
bool launch_grouped_forward(const GroupedOperands&, cudaStream_t) { return false; }
bool launch_grouped_input(const GroupedOperands&, cudaStream_t) { return false; }
bool launch_grouped_weight(const GroupedOperands&, cudaStream_t) { return false; }

}  // namespace hone
