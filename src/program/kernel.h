// Kernels, the implementations of operations on a device, and the registry in which they are found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "core/error.h"
#include "program/attributes.h"
#include "program/op.h"
#include "program/type.h"

namespace hone {

// One operand of a kernel call. `data` is null for an optional input that is missing.
struct TensorView {
  std::byte* data = nullptr;
  const Type* type = nullptr;
  const std::int64_t* count = nullptr;         // in host memory; null: no count, or one known only on the device
  const std::int64_t* device_count = nullptr;  // the same count in device memory; null: all rows are in use
  bool constant = false;                       // a weight or an input that no node of the program writes

  explicit operator bool() const { return data != nullptr; }
  [[nodiscard]] DType dtype() const { return type->dtype; }
  [[nodiscard]] std::int64_t dim(std::size_t index) const { return type->shape[index].size; }
  [[nodiscard]] std::int64_t capacity() const { return type->rows(); }  // rows allocated
  [[nodiscard]] std::int64_t rows() const {                             // rows in use
    if (device_count == nullptr) return type->rows();
    HONE_ASSERT(count != nullptr, "the number of rows in use of ", to_text(*type), " is known only on the device");
    const std::int64_t used = *count * type->shape[0].factor;
    HONE_ASSERT(used >= 0 && used <= capacity(), used, " rows of ", to_text(*type), " are in use");
    return used;
  }
  [[nodiscard]] std::int64_t row_size() const { return type->row_size(); }
  [[nodiscard]] std::int64_t elements() const { return type->elements(); }
  template <class T>
  [[nodiscard]] T* as() const {
    HONE_ASSERT(DTypeOf<T>::value == type->dtype, "a ", name_of(type->dtype), " tensor is read as ",
                name_of(DTypeOf<T>::value));
    return reinterpret_cast<T*>(data);
  }
};

// Arguments of one launch. Contract of rows past the count: a kernel writes all rows of its outputs up to their
// capacity, those past the count with finite values (zeros in a gradient). Such rows of the inputs, which are finite as
// well, must not affect any other row.
//
// On a GPU, launches are recorded and replayed with other counts. There a kernel must read `device_count` on the device
// and never call rows().
struct KernelCall {
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  const Attributes* attributes = nullptr;
  std::span<std::byte> workspace;  // scratch buffer of the size that Kernel::workspace returned
  Device* device = nullptr;

  [[nodiscard]] const TensorView& in(std::size_t index) const { return inputs[index]; }
  [[nodiscard]] const TensorView& out(std::size_t index) const { return outputs[index]; }
  template <class T>
  [[nodiscard]] const T& attributes_as() const {
    return attributes->as<T>();
  }
};

struct Kernel {
  std::function<void(const KernelCall&)> run;
  // Returns the bytes of scratch memory for a node with these types; null: none.
  std::function<std::size_t(InputTypes inputs, std::span<const Type> outputs, const Attributes&)> workspace;
  // Runs successive nodes of the operation, none of which reads or writes what another one writes, in fewer launches
  // than run() would, with the same results; null: they run one by one.
  std::function<void(std::span<const KernelCall>)> run_together = nullptr;
};

class KernelRegistry {
 public:
  void add(std::string_view op, DeviceKind device, Kernel kernel);
  // Throws Defect if the device has no kernel for the operation.
  [[nodiscard]] const Kernel& get(std::string_view op, DeviceKind device) const;
  // Like get(), but returns the CPU kernel if this build has none for the device. Memory for a GPU can then be planned
  // on a machine without one.
  [[nodiscard]] const Kernel& get_for_planning(std::string_view op, DeviceKind device) const;

 private:
  std::map<std::pair<std::string, DeviceKind>, Kernel> kernels_;
};

[[nodiscard]] KernelRegistry& kernel_registry();

// Calls body.operator()<T>() with the C++ type of a floating-point dtype. Throws Defect for other dtypes.
template <class Body>
void for_floating(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      body.template operator()<float>();
      return;
    case DType::kBf16:
      body.template operator()<BFloat16>();
      return;
    case DType::kF64:
      body.template operator()<double>();
      return;
    default:
      throw Defect(text_of("expected a floating-point dtype, saw ", name_of(dtype)));
  }
}

}  // namespace hone
