#include "backend/device.h"

#include "core/error.h"
#ifdef HONE_CUDA
#include "backend/cuda/device.h"
#endif

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
  if (choice == DeviceChoice::cpu) return cpu_device();
#ifdef HONE_CUDA
  const std::string obstacle = cuda_obstacle();
  if (obstacle.empty()) return cuda_device();
  if (choice == DeviceChoice::cuda) throw Error("device", "cuda cannot be used: " + obstacle, "device: cpu works");
#else
  if (choice == DeviceChoice::cuda) {
    throw Error("device", "this build of hone has no CUDA backend",
                "build it with the preset cuda, or use device: cpu");
  }
#endif
  return cpu_device();
}

}  // namespace hone
