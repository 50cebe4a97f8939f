#include "backend/cpu/gemm.h"
#include "ops/accumulated.h"
#include "ops/linear/linear.h"
#include "ops/linear/products.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// Workspace of the GEMM that `product` describes, for the first two inputs and the output.
template <auto product>
std::size_t linear_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  return gemm_workspace_bytes(product(required(inputs, LinearFactorsIn::a, "linear"),
                                      required(inputs, LinearFactorsIn::b, "linear"), outputs[0]),
                              thread_count());
}

void multiply(const KernelCall& call, GemmArgs args) {
  args.a = call.in(LinearFactorsIn::a).data;
  args.b = call.in(LinearFactorsIn::b).data;
  args.c = call.out(0).data;
  args.workspace = call.workspace;
  gemm(args);
}

void linear_forward(const KernelCall& call) {
  GemmArgs args = linear_product(*call.in(LinearIn::x).type, *call.in(LinearIn::weight).type, *call.out(0).type);
  args.m = call.in(LinearIn::x).rows();
  if (call.in(LinearIn::bias)) {
    args.bias = call.in(LinearIn::bias).data;
    args.bias_type = call.in(LinearIn::bias).dtype();
  }
  multiply(call, args);
  zero_tail(call.out(0));
}

void linear_input_gradient(const KernelCall& call) {
  GemmArgs args = linear_input_product(*call.in(LinearInputGradientIn::dy).type,
                                       *call.in(LinearInputGradientIn::weight).type, *call.out(0).type);
  args.m = call.in(LinearInputGradientIn::dy).rows();
  multiply(call, args);
  zero_tail(call.out(0));
}

void linear_weight_gradient(const KernelCall& call) {
  GemmArgs args = linear_weight_product(*call.in(LinearWeightGradientIn::dy).type,
                                        *call.in(LinearWeightGradientIn::x).type, *call.out(0).type);
  args.k = call.in(LinearWeightGradientIn::dy).rows();
  args.accumulate = adds_to_gradient(call, LinearWeightGradientIn::accumulated);
  multiply(call, args);
}

// Adds the rows one after the other; each thread has some columns.
template <class T>
void bias_gradient(const KernelCall& call) {
  using A = Accumulator<T>;
  const TensorView& dy = call.in(LinearBiasGradientIn::dy);
  const std::int64_t n = dy.row_size();
  const T* dys = dy.as<T>();
  A* dbias = call.out(0).as<A>();
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < dy.rows(); ++row) {
      for (std::int64_t i = begin; i < end; ++i) dbias[i] += widen(dys[row * n + i]);
    }
  });
}

}  // namespace

void register_linear_cpu(KernelRegistry& registry) {
  registry.add("linear", DeviceKind::kCpu, {linear_forward, linear_workspace<linear_product>});
  registry.add("linear_input_gradient", DeviceKind::kCpu,
               {linear_input_gradient, linear_workspace<linear_input_product>});
  registry.add("linear_weight_gradient", DeviceKind::kCpu,
               {linear_weight_gradient, linear_workspace<linear_weight_product>});
  registry.add("linear_bias_gradient", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(LinearBiasGradientIn::dy).dtype(), [&]<class T>() { bias_gradient<T>(call); });
                },
                {}});
}

}  // namespace hone
