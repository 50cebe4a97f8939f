#include "backend/cpu/gemm_fp8.h"
#include "core/parallel.h"
#include "ops/fp8_linear/fp8_linear.h"
#include "ops/linear/products.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// The packing of the GEMM converts the weights.
void fp8_linear_forward(const KernelCall& call) {
  Fp8Product product = fp8_product(call);
  product.args.m = call.in(Fp8LinearIn::x).rows();
  product.args.workspace = call.workspace;
  gemm_fp8(product.args, product.scales);
  zero_tail(call.out(0));
}

std::size_t fp8_linear_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  return gemm_fp8_workspace_bytes(linear_product(required(inputs, Fp8LinearIn::x, "fp8_linear"),
                                                 required(inputs, Fp8LinearIn::weight, "fp8_linear"), outputs[0]),
                                  thread_count());
}

}  // namespace

void register_fp8_linear_cpu(KernelRegistry& registry) {
  registry.add("fp8_linear", DeviceKind::kCpu, {fp8_linear_forward, fp8_linear_workspace});
}

}  // namespace hone
