// The device that tests of computation run on.
#pragma once

#include <cstdlib>
#include <string_view>

#include "backend/device.h"

namespace hone::test {

// The host, or with HONE_TEST_DEVICE=cuda the GPU.
[[nodiscard]] inline Device& test_device() {
  const char* wanted = std::getenv("HONE_TEST_DEVICE");
  return open_device(wanted != nullptr && std::string_view(wanted) == "cuda" ? DeviceChoice::kCuda
                                                                             : DeviceChoice::kCpu);
}

// A GPU's kernels leave out what lies outside of a tensor: they cannot throw.
[[nodiscard]] inline bool test_device_throws() { return test_device().kind() == DeviceKind::kCpu; }

}  // namespace hone::test
