// An error of the GPU ends the process with the name of the node that caused it.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "core/error.h"
#include "ops/registry.h"
#include "ops/scale/scale.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {
namespace {

// Runs a kernel that reads weights whose memory has been freed.
[[noreturn]] void read_what_is_gone() {
  register_operations();
  const Type type{DType::kF32, {1 << 22, 8}};
  Program program;
  const Scope scope(program, "layers.3.mlp");
  program.output("y", scale(program.weight("w", type), 2.0));
  const NamedType weight{"w", type};
  TensorStore weights(test_device(), {&weight, 1});
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {.weights = &weights});
  executable.run();
  weights = TensorStore();
  executable.set_recording(false);
  try {
    executable.run();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(1);
  }
  std::_Exit(0);
}

TEST(FaultDeathTest, NamesItsNode) {
  if (test_device().kind() == DeviceKind::kCpu) GTEST_SKIP() << "reading freed host memory does not fail reliably";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(read_what_is_gone(), testing::ExitedWithCode(1), "scale in layers\\.3\\.mlp: cuda: work on the GPU");
}

}  // namespace
}  // namespace hone::test
