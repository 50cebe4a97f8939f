// The device that tests of computation run on.
#pragma once

#include <cstdlib>
#include <string_view>

#include "backend/device.h"

namespace hone::test {

// Returns the emulated GPU (tests/support/hip) in a test program that has one.
inline Device& (*emulated_device)() = nullptr;

// The host, with HONE_TEST_DEVICE=cuda the GPU, with HONE_TEST_DEVICE=emulated the emulated one.
[[nodiscard]] inline Device& test_device() {
  const char* value = std::getenv("HONE_TEST_DEVICE");
  const std::string_view wanted = value != nullptr ? value : "cpu";
  if (wanted == "emulated" && emulated_device != nullptr) return emulated_device();
  return open_device(wanted == "cuda" ? DeviceChoice::kCuda : DeviceChoice::kCpu);
}

// A GPU's kernels leave out what lies outside of a tensor: they cannot throw.
[[nodiscard]] inline bool test_device_throws() { return test_device().kind() == DeviceKind::kCpu; }

}  // namespace hone::test
