#include "backend/cuda/pinned_memory.h"
#include "ops/offload/offload.h"
#include "ops/registry.h"

namespace hone {
namespace {

int slot_of(const KernelCall& call) { return static_cast<int>(call.attributes_as<OffloadAttributes>().slot); }

// Starts copying the whole capacity, because only the device knows the count.
void start(const KernelCall& call, cudaMemcpyKind kind) {
  side_copies().start(slot_of(call), call.out(0).data, call.in(OffloadIn::x).data, call.in(OffloadIn::x).type->bytes(),
                      kind);
}

void wait(const KernelCall& call) { side_copies().wait(slot_of(call)); }

}  // namespace

void register_offload_cuda(KernelRegistry& registry) {
  registry.add("offload", DeviceKind::kCuda, {[](const KernelCall& call) { start(call, cudaMemcpyDeviceToHost); }, {}});
  registry.add("offload_wait", DeviceKind::kCuda, {wait, {}});
  registry.add("offload_fetch", DeviceKind::kCuda,
               {[](const KernelCall& call) { start(call, cudaMemcpyHostToDevice); }, {}});
  registry.add("offload_fetch_wait", DeviceKind::kCuda, {wait, {}});
}

}  // namespace hone
