#include <cstring>

#include "ops/offload/offload.h"
#include "ops/registry.h"

namespace hone {
namespace {

// The host copies synchronously: a copy is complete when it has been started.
void copy(const KernelCall& call) {
  std::memcpy(call.out(0).data, call.in(OffloadIn::x).data, call.in(OffloadIn::x).type->bytes());
}

void nothing(const KernelCall&) {}

}  // namespace

void register_offload_cpu(KernelRegistry& registry) {
  registry.add("offload", DeviceKind::kCpu, {copy, {}});
  registry.add("offload_wait", DeviceKind::kCpu, {nothing, {}});
  registry.add("offload_fetch", DeviceKind::kCpu, {copy, {}});
  registry.add("offload_fetch_wait", DeviceKind::kCpu, {nothing, {}});
}

}  // namespace hone
