// Runs a Program on a device: binds its values to memory, sets inputs, launches the kernels and reads outputs.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/device.h"
#include "program/input_buffer.h"
#include "program/kernel.h"
#include "program/memory_plan.h"
#include "program/node_observer.h"
#include "program/program.h"
#include "program/tensor_store.h"

namespace hone {

// Device memory for the activations and workspaces of one run. Executables that run one after the other share an arena
// of the size of the largest: construct all of them, each of which reserves its size, before the first one runs.
class Arena {
 public:
  explicit Arena(Device& device) : device_(&device) {}
  // Uses memory of the device that the caller owns.
  Arena(Device& device, std::span<std::byte> memory) : device_(&device), bytes_(memory.size()), base_(memory.data()) {}
  // Grows the arena to at least this size. The first call of base() allocates the memory; the size is then fixed.
  void reserve(std::size_t bytes);
  [[nodiscard]] std::byte* base();
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] Device& device() const { return *device_; }

 private:
  Device* device_;
  std::size_t bytes_ = 0;
  Buffer buffer_;
  std::byte* base_ = nullptr;  // null until the first call of base()
};

// Stores that hold the bound values of a program, by role. A null store binds nothing.
struct Bindings {
  const TensorStore* weights = nullptr;
  const TensorStore* gradients = nullptr;
  const TensorStore* states = nullptr;
  const TensorStore* host_states = nullptr;  // states with Placement::kHost
};

// A program with planned memory and bound values. Movable, not thread-safe.
class Executable {
 public:
  // Plans the memory and reserves it in the arena; allocates only the inputs. The stores must outlive the executable.
  Executable(const Program& program, const std::shared_ptr<Arena>& arena, const Bindings& bindings);
  // The same with a given plan, which must be plan_memory() of the program for the arena's device. inputs: a buffer
  // that has room for the program's inputs and that executables share which run one after the other; null: one of its
  // own.
  Executable(Program program, MemoryPlan plan, std::shared_ptr<Arena> arena, const Bindings& bindings,
             std::shared_ptr<InputBuffer> inputs = nullptr);
  ~Executable();
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;

  [[nodiscard]] const Program& program() const;
  [[nodiscard]] const MemoryPlan& plan() const;
  // Turns recording on or off; it is on by default. On a device that records (CUDA graphs), the second run records the
  // launches, and later runs replay them as a whole. In the first run, and in all runs without recording, the host
  // waits for each node, so that an error of the device names the node. The results are the same.
  // CUDA_LAUNCH_BLOCKING=1 in the environment turns the default off.
  void set_recording(bool recording);
  // Copies values.size() elements to the beginning of an input. The rest of the input keeps its content: what was last
  // set there by an executable that shares the inputs, or zeros.
  template <class T>
  void set(std::string_view input, std::span<const T> values) {
    set_bytes(input, DTypeOf<T>::value, std::as_bytes(values));
  }
  // Sets a count for the following runs, from 0 to its capacity, which is also the default.
  void set_count(Count count, std::int64_t value);
  // Returns the counts, and the inputs that were set since the last run of an executable that shares them, for
  // set_changes() of an executable of the same program in another process, which has had those of all runs before.
  [[nodiscard]] std::string changes() const;
  void set_changes(std::string_view changes);
  // Launches the nodes before the first one that reads an input; the next run() launches the others. Until then the
  // device may work on the first part while the host finds out what to set: inputs that only the others read. Until
  // then no other executable may set inputs that it shares with this one, or run.
  void begin(std::string_view late_input);
  void run();
  // Waits for the device and copies the first values.size() elements of an output.
  template <class T>
  void get(std::string_view output, std::span<T> values) const {
    get_bytes(output, DTypeOf<T>::value, std::as_writable_bytes(values), true);
  }
  // The same for a few elements, without waiting: `values` is filled when the device has been synchronized.
  template <class T>
  void get_later(std::string_view output, std::span<T> values) const {
    get_bytes(output, DTypeOf<T>::value, std::as_writable_bytes(values), false);
  }
  [[nodiscard]] Device& device() const;
  // Reports each node of the following runs to the observer. These runs launch the nodes one by one, without replaying
  // a recording. Null removes the observer.
  void set_observer(NodeObserver* observer);
  // Binds the weights to another store of the same tensors, for example those of a reference model.
  void rebind_weights(const TensorStore& weights);

 private:
  void set_bytes(std::string_view input, DType dtype, std::span<const std::byte> bytes);
  void get_bytes(std::string_view output, DType dtype, std::span<std::byte> bytes, bool wait) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
