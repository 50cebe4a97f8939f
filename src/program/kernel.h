// Kernels: the code of an operation on a device.
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

// One operand of a kernel call. `data` is null for an optional input that is not given.
struct TensorView {
  std::byte* data = nullptr;
  const Type* type = nullptr;
  const std::int64_t* count = nullptr;         // of its rows; null: all are in use, or only the device knows
  const std::int64_t* device_count = nullptr;  // the same in the device's memory; null: all are in use

  explicit operator bool() const { return data != nullptr; }
  [[nodiscard]] DType dtype() const { return type->dtype; }
  [[nodiscard]] std::int64_t dim(std::size_t index) const { return type->shape[index].size; }
  [[nodiscard]] std::int64_t capacity() const { return type->rows(); }  // rows there is room for
  [[nodiscard]] std::int64_t rows() const {                             // rows in use
    if (device_count == nullptr) return type->rows();
    HONE_ASSERT(count != nullptr, "how many rows of ", to_text(*type), " are in use is known on the device alone");
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

// One launch. A kernel writes every row of its outputs up to their capacity: rows past the count become finite values
// (zero in a gradient), and such rows of the inputs, finite too, touch no other row.
//
// On a GPU, launches are recorded and repeated with other counts: there a kernel reads `device_count`, never rows().
struct KernelCall {
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  const Attributes* attributes = nullptr;
  std::span<std::byte> workspace;  // as large as the kernel's `workspace` said
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
  // Bytes of scratch memory for a node of these types; none by default.
  std::function<std::size_t(InputTypes inputs, std::span<const Type> outputs, const Attributes&)> workspace;
};

class KernelRegistry {
 public:
  void add(std::string_view op, DeviceKind device, Kernel kernel);
  // Throws Defect where the device has no kernel for the operation.
  [[nodiscard]] const Kernel& get(std::string_view op, DeviceKind device) const;
  // The device's kernel; where this build has none for it, the host's, so that a GPU can be planned for without one.
  [[nodiscard]] const Kernel& get_to_plan(std::string_view op, DeviceKind device) const;

 private:
  std::map<std::pair<std::string, DeviceKind>, Kernel> kernels_;
};

[[nodiscard]] KernelRegistry& kernel_registry();

// Calls body.operator()<T>() with the C++ type of a floating dtype.
template <class Body>
void for_floating(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32:
      body.template operator()<float>();
      return;
    case DType::bf16:
      body.template operator()<BFloat16>();
      return;
    case DType::f64:
      body.template operator()<double>();
      return;
    default:
      throw Defect(text_of("a floating type is wanted, not ", name_of(dtype)));
  }
}

}  // namespace hone
