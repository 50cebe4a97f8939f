#include "backend/device.h"

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

}  // namespace hone
