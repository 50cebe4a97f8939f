// Holder for objects that must never be destroyed, such as handles of CUDA libraries.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace hone {

// Holds a T that is never destroyed, as a function-local static:
//
//   static Immortal<CudaDevice> device(0);
//   return device.get();
//
// Static destructors and the exit handlers of libraries run in the reverse order of their registration. A library that
// was loaded after the object was constructed has already shut down when the object's destructor runs, and releasing
// the library's handles would then free its memory twice. The kernel reclaims all resources when the process ends.
template <class T>
class Immortal {
 public:
  template <class... Arguments>
  explicit Immortal(Arguments&&... arguments) {
    ::new (static_cast<void*>(storage_)) T(std::forward<Arguments>(arguments)...);
  }
  Immortal(const Immortal&) = delete;
  Immortal& operator=(const Immortal&) = delete;
  ~Immortal() = default;

  [[nodiscard]] T& get() { return *std::launder(reinterpret_cast<T*>(storage_)); }

 private:
  alignas(T) std::byte storage_[sizeof(T)];
};

}  // namespace hone
