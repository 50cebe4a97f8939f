// A Program made ready to run on a device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "backend/device.h"
#include "program/kernel.h"
#include "program/memory_plan.h"
#include "program/node_observer.h"
#include "program/program.h"
#include "program/tensor_store.h"

namespace hone {

// The step arena that all executables of a process share: they run one after the other. Reserve for each, then use.
class Arena {
 public:
  explicit Arena(Device& device) : device_(&device) {}
  // In memory of the device that is another's.
  Arena(Device& device, std::span<std::byte> memory) : device_(&device), bytes_(memory.size()), base_(memory.data()) {}
  // Grows the arena to at least this size. Base and size are fixed at the first use.
  void reserve(std::size_t bytes);
  [[nodiscard]] std::byte* base();
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] Device& device() const { return *device_; }

 private:
  Device* device_;
  std::size_t bytes_ = 0;
  Buffer buffer_;
  std::byte* base_ = nullptr;  // null until the first use
};

// What the bound values of a program lie in. A null store holds nothing.
struct Bindings {
  const TensorStore* weights = nullptr;
  const TensorStore* gradients = nullptr;
  const TensorStore* states = nullptr;
  const TensorStore* host_states = nullptr;  // those placed in the host's memory
};

class Executable {
 public:
  // Compiles and reserves its arena bytes; allocates nothing but its inputs. The stores must outlive it.
  Executable(Program program, std::shared_ptr<Arena> arena, const Bindings& bindings);
  // The same with the plan_memory() of the program for the arena's device, where it is known already.
  Executable(Program program, MemoryPlan plan, std::shared_ptr<Arena> arena, const Bindings& bindings);
  ~Executable();
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;

  [[nodiscard]] const Program& program() const;
  [[nodiscard]] const MemoryPlan& plan() const;
  // Where the device records, the second run records the launches and all later ones repeat them as one. In the first
  // run, and without recording in all, every node is launched and waited for by itself, so that an error of the device
  // names its node. The results are the same. CUDA_LAUNCH_BLOCKING=1 in the environment turns recording off.
  void set_recording(bool recording);
  // Fills an input; as many elements as `values` has, from its start.
  template <class T>
  void set(std::string_view input, std::span<const T> values) {
    set_bytes(input, DTypeOf<T>::value, std::as_bytes(values));
  }
  void set_count(Count count, std::int64_t value);  // at most the capacity
  void run();
  // Reads an output; values.size() elements from its start.
  template <class T>
  void get(std::string_view output, std::span<T> values) const {
    get_bytes(output, DTypeOf<T>::value, std::as_writable_bytes(values), true);
  }
  // The same for a few elements, without waiting: they are there once the device has been synchronized.
  template <class T>
  void get_later(std::string_view output, std::span<T> values) const {
    get_bytes(output, DTypeOf<T>::value, std::as_writable_bytes(values), false);
  }
  [[nodiscard]] Device& device() const;
  // Tells the observer of the nodes of the following runs, which are launched one by one; null stops that.
  void set_observer(NodeObserver* observer);
  // Binds the weights to another store of the same tensors (a reference model).
  void rebind_weights(const TensorStore& weights);

 private:
  void set_bytes(std::string_view input, DType dtype, std::span<const std::byte> bytes);
  void get_bytes(std::string_view output, DType dtype, std::span<std::byte> bytes, bool wait) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
