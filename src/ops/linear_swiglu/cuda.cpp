// Few rows in bf16 on Hopper have a kernel that computes both operations (few_rows_cuda.cu). Others have the kernels of
// the two.
#include "ops/linear_swiglu/few_rows_cuda.h"
#include "ops/linear_swiglu/parts.h"
#include "ops/registry.h"

namespace hone {
namespace {

void forward(const KernelCall& call) {
  if (!launch_few_rows_swiglu(call)) run_linear_and_swiglu(call);
}

}  // namespace

void register_linear_swiglu_cuda(KernelRegistry& registry) {
  registry.add("linear_swiglu", DeviceKind::kCuda,
               {forward, [](InputTypes inputs, std::span<const Type>, const Attributes&) {
                  return linear_and_swiglu_workspace(DeviceKind::kCuda, inputs);
                }});
}

}  // namespace hone
