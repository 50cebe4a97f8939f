#include "ops/gather.cuh"
#include "ops/gather_rows/gather_rows.h"
#include "ops/registry.h"

namespace hone {
namespace {

void forward(const KernelCall& call) {
  launch_gather(call, call.in(GatherRowsIn::x), call.in(GatherRowsIn::index), call.out(0));
}

}  // namespace

void register_gather_rows_cuda(KernelRegistry& registry) {
  registry.add("gather_rows", DeviceKind::kCuda, {forward, {}});
}

}  // namespace hone
