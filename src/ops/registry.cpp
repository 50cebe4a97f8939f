#include "ops/registry.h"

#include <mutex>

namespace hone {

void register_operations() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_all_ops(op_registry());
    register_all_ops_cpu(kernel_registry());
#ifdef HONE_CUDA
    register_all_ops_cuda(kernel_registry());
#endif
  });
}

}  // namespace hone
