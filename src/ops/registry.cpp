#include "ops/registry.h"

#include <mutex>

namespace hone {

void register_operations() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_all_ops(op_registry());
    register_all_ops_cpu(kernel_registry());
    register_all_ops_cuda(kernel_registry());
  });
}

}  // namespace hone
