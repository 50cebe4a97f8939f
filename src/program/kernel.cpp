#include "program/kernel.h"

namespace hone {

void KernelRegistry::add(std::string_view op, DeviceKind device, Kernel kernel) {
  const bool added = kernels_.emplace(std::pair(std::string(op), device), std::move(kernel)).second;
  HONE_ASSERT(added, "operation ", op, " has two kernels for one device");
}

const Kernel& KernelRegistry::get(std::string_view op, DeviceKind device) const {
  const auto found = kernels_.find({std::string(op), device});
  if (found == kernels_.end()) throw Defect(text_of("operation ", op, " has no kernel for this device"));
  return found->second;
}

const Kernel& KernelRegistry::get_for_planning(std::string_view op, DeviceKind device) const {
  const auto found = kernels_.find({std::string(op), device});
  return found != kernels_.end() ? found->second : get(op, DeviceKind::kCpu);
}

KernelRegistry& kernel_registry() {
  static KernelRegistry registry;
  return registry;
}

}  // namespace hone
