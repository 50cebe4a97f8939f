#include "backend/device.h"

#include "backend/gpu.h"

namespace hone {

Buffer::Buffer(Device& device, std::size_t bytes) : device_(&device), size_(bytes) {
  if (bytes == 0) return;
  data_ = device.allocate(bytes);
  device.allocated_ += bytes;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  device_->allocated_ -= size_;
  device_->release(data_, size_);
}

Device& open_device(DeviceChoice choice) {
  if (choice == DeviceChoice::kCpu) return cpu_device();
  const std::optional<Error> obstacle = gpu_obstacle();
  if (!obstacle) return gpu_device();
  if (choice == DeviceChoice::kCuda) throw *obstacle;
  return cpu_device();
}

}  // namespace hone
