// Host device that records the size of the largest single copy to or from it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "backend/device.h"

namespace hone::test {

class MeteredDevice : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override { return "metered"; }
  void upload(std::byte* device, const void* host, std::size_t bytes) override {
    largest_ = std::max(largest_, bytes);
    cpu_device().upload(device, host, bytes);
  }
  void download(void* host, const std::byte* device, std::size_t bytes) override {
    largest_ = std::max(largest_, bytes);
    cpu_device().download(host, device, bytes);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override { cpu_device().copy(to, from, bytes); }
  void fill(std::byte* device, int byte, std::size_t bytes) override { cpu_device().fill(device, byte, bytes); }
  void synchronize() override {}

  // Largest copy since the last call, in bytes.
  std::size_t take_largest() { return std::exchange(largest_, 0); }

 private:
  std::byte* allocate(std::size_t bytes) override { return new std::byte[bytes](); }
  void release(std::byte* data, std::size_t) override { delete[] data; }

  std::size_t largest_ = 0;
};

}  // namespace hone::test
