// The kernels of ops/linear/few_rows_cuda.cu with swiglu of the sums in place of the sums. A tile has rows of gate and
// the same rows of up, so that a thread has both for each of its elements of y; a sum is the same chain and is rounded
// to bf16 as before. No kernel runs between this product and that of down, half of the bytes are written, and none is
// read again. x is read once for twice as many rows of W.
//
// In a tile the rows of each matrix follow each other: an H200 reads W 3% slower if rows of gate and of up alternate,
// which costs what the fusion gains.
#include "ops/linear/few_rows_launch.cuh"
#include "ops/linear/products.h"
#include "ops/linear_swiglu/few_rows_cuda.h"
#include "ops/linear_swiglu/linear_swiglu.h"

namespace hone {

bool launch_few_rows_swiglu(const KernelCall& call) {
  const TensorView& x = call.in(LinearSwigluIn::x);
  const TensorView& weight = call.in(LinearSwigluIn::weight);
  const TensorView& bias = call.in(LinearSwigluIn::bias);
  const TensorView& y = call.out(0);
  const CudaDevice& device = cuda_device_of(call);
  GemmArgs args = linear_product(*x.type, *weight.type, *y.type);
  args.a = x.data;
  args.b = weight.data;
  args.c = y.data;
  args.bias = bias.data;
  if (device.compute_capability() != 90 || !is_few_rows_product(args) || y.dtype() != DType::kBf16) return false;
  if (!few_rows_pay(args.m, args.n, args.k)) return false;
  return launch_product<SwigluOfSums>(
      {.gemm = args, .constant_weight = weight.constant, .sm_count = device.sm_count(), .stream = device.stream()});
}

}  // namespace hone
