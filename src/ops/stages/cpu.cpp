#include <cmath>
#include <cstring>

#include "backend/collective.h"
#include "core/error.h"
#include "ops/registry.h"
#include "ops/stages/stages.h"

namespace hone {
namespace {

void copy_to_home(const KernelCall& call) {
  const TensorView& x = call.in(StagesKeepIn::x);
  std::memcpy(call.out(0).data, x.data, x.type->bytes());
}

template <class T>
void write_norm(const KernelCall& call) {
  HONE_ASSERT(current_pipeline_collective() != nullptr, "a stage of a pipeline runs without the others");
  auto* square = reinterpret_cast<double*>(call.workspace.data());
  const auto own = static_cast<double>(*call.in(0).as<T>());
  *square = own * own;
  current_pipeline_collective()->all_reduce(call.workspace.data(), DType::kF64, 1);
  *call.out(0).as<T>() = static_cast<T>(std::sqrt(*square));
}

void stages_norm(const KernelCall& call) {
  if (call.in(0).dtype() == DType::kF64) return write_norm<double>(call);
  write_norm<float>(call);
}

std::size_t bytes_of_square(InputTypes, std::span<const Type>, const Attributes&) { return sizeof(double); }

}  // namespace

void register_stages_cpu(KernelRegistry& registry) {
  registry.add("stages_keep", DeviceKind::kCpu, {copy_to_home, {}});
  registry.add("stages_norm", DeviceKind::kCpu, {stages_norm, bytes_of_square});
}

}  // namespace hone
