// Writing heads to pages on a CPU, shared by kv_append and rope_append.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/error.h"
#include "core/float8_head.h"
#include "ops/kv_append/kv_append.h"
#include "program/kernel.h"

namespace hone {

// The pages that an operation over `rows` rows of T writes. Views of scales are null unless the pages are in FP8.
template <class T>
class CpuPages {
 public:
  // Throws Defect if a slot is outside of the pages.
  CpuPages(const TensorView& keys, const TensorView& values, const TensorView* key_scales,
           const TensorView* value_scales, const TensorView& slots, std::int64_t rows, const KvAppendAttributes& a)
      : keys_(keys),
        values_(values),
        key_scales_(key_scales),
        value_scales_(value_scales),
        slots_(slots.as<std::int32_t>()),
        block_size_(keys.dim(1)),
        heads_(a.kv_heads),
        head_dim_(a.head_dim) {
    const std::int64_t all_slots = keys.dim(0) * keys.dim(1);
    for (std::int64_t row = 0; row < rows; ++row) {
      HONE_ASSERT(slots_[row] >= 0 && slots_[row] < all_slots, "slot ", slots_[row], " at row ", row,
                  " is out of range; the number of slots is ", all_slots);
    }
  }

  // Writes the keys of a row, which the values follow.
  void append(std::int64_t row, const T* keys) const {
    const std::int64_t width = heads_ * head_dim_;
    if (key_scales_ == nullptr) {
      std::copy_n(keys, width, keys_.as<T>() + slots_[row] * width);
      std::copy_n(keys + width, width, values_.as<T>() + slots_[row] * width);
    } else {
      quantize(row, keys, keys_, *key_scales_);
      quantize(row, keys + width, values_, *value_scales_);
    }
  }

 private:
  void quantize(std::int64_t row, const T* heads, const TensorView& pages, const TensorView& scales) const {
    if constexpr (std::is_same_v<T, double>) {
      HONE_ASSERT(false, "FP8 pages of f64");
    } else {
      const std::int64_t slot = slots_[row];
      std::uint8_t* bytes = pages.as<std::uint8_t>() + slot * heads_ * head_dim_;
      std::uint8_t* scale = scales.as<std::uint8_t>() + slot / block_size_ * heads_ * block_size_ + slot % block_size_;
      for (std::int64_t head = 0; head < heads_; ++head) {
        scale[head * block_size_] = quantize_head(heads + head * head_dim_, head_dim_, bytes + head * head_dim_);
      }
    }
  }

  const TensorView& keys_;
  const TensorView& values_;
  const TensorView* key_scales_;
  const TensorView* value_scales_;
  const std::int32_t* slots_;  // [rows]
  std::int64_t block_size_, heads_, head_dim_;
};

// The view of an output that the operation may lack.
[[nodiscard]] inline const TensorView* output_or_null(const KernelCall& call, std::size_t index) {
  return call.outputs.size() > index ? &call.outputs[index] : nullptr;
}

}  // namespace hone
