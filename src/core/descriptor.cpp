#include "core/descriptor.h"

#include <unistd.h>

#include <utility>

namespace hone {

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (open()) ::close(number_);
    number_ = other.release();
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (open()) ::close(number_);
}

int Descriptor::release() { return std::exchange(number_, -1); }

}  // namespace hone
