// The functions that the build would call for the folders of this example, were they in src/.
#pragma once

#include "model/registry.h"
#include "ops/registry.h"

namespace hone {

void register_toy_square(OpRegistry& registry);
void register_toy_square_cpu(KernelRegistry& registry);
void register_toy(FamilyRegistry& registry);

namespace test {

// Fills the process's registries of operations, as programs that run need them, once.
inline void register_example() {
  static const bool once = [] {
    register_operations();
    register_toy_square(op_registry());
    register_toy_square_cpu(kernel_registry());
    return true;
  }();
  (void)once;
}

}  // namespace test
}  // namespace hone
