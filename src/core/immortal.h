// Objects that live as long as the process.
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
// What a static destructor does runs between the exit handlers of libraries, in the reverse order of their first use:
// a library that was opened after the object was made has already torn itself down by then, so that giving its handles
// back frees its memory twice. The process's end gives everything back anyway.
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
