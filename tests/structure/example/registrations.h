// The registration functions that the build would generate calls for if the folders of this example were in src/.
#pragma once

#include "model/registry.h"
#include "ops/registry.h"

namespace hone {

void register_toy_square(OpRegistry& registry);
void register_toy_square_cpu(KernelRegistry& registry);
void register_toy(FamilyRegistry& registry);

namespace test {

// Registers the operations of hone and of the example in the process's registries, on the first call.
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
