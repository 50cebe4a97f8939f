#include "backend/collective.h"
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"
#include "ops/stages/stages.h"

namespace hone {
namespace {

template <class T>
__global__ void square_kernel(const T* norm, double* square) {
  const auto own = static_cast<double>(*norm);
  *square = own * own;
}

template <class T>
__global__ void root_kernel(const double* square, T* norm) {
  *norm = static_cast<T>(sqrt(*square));
}

void copy_to_home(const KernelCall& call) {
  const TensorView& x = call.in(StagesKeepIn::x);
  if (x.type->bytes() == 0) return;
  const cudaError_t status =
      cudaMemcpyAsync(call.out(0).data, x.data, x.type->bytes(), cudaMemcpyDeviceToDevice, stream_of(call));
  HONE_ASSERT(status == cudaSuccess, "stages_keep: ", cudaGetErrorString(status));
}

template <class T>
void write_norm(const KernelCall& call) {
  Collective* const pipeline = current_pipeline_collective();
  HONE_ASSERT(pipeline != nullptr, "a stage of a pipeline runs without the others");
  auto* square = reinterpret_cast<double*>(call.workspace.data());
  square_kernel<<<1, 1, 0, stream_of(call)>>>(call.in(0).as<T>(), square);
  check_launch("stages_norm: square");
  pipeline->all_reduce(call.workspace.data(), DType::kF64, 1);
  root_kernel<<<1, 1, 0, stream_of(call)>>>(square, call.out(0).as<T>());
  check_launch("stages_norm: root");
}

void norm(const KernelCall& call) {
  if (call.in(0).dtype() == DType::kF64) return write_norm<double>(call);
  write_norm<float>(call);
}

std::size_t bytes_of_square(InputTypes, std::span<const Type>, const Attributes&) { return sizeof(double); }

}  // namespace

void register_stages_cuda(KernelRegistry& registry) {
  registry.add("stages_keep", DeviceKind::kCuda, {copy_to_home, {}});
  registry.add("stages_norm", DeviceKind::kCuda, {norm, bytes_of_square});
}

}  // namespace hone
