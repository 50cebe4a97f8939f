#include "ops/gather.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

void forward(const KernelCall& call) { launch_gather(call, call.in(0), call.in(1), call.out(0)); }

}  // namespace

void register_gather_rows_cuda(KernelRegistry& registry) {
  registry.add("gather_rows", DeviceKind::cuda, {forward, {}});
}

}  // namespace hone
