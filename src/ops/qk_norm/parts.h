// Attributes that the operation and the kernels of qk_norm share but callers do not need.
#pragma once

#include <cstdint>

namespace hone {

// The heads of a row whose gradients qk_norm_weight_gradient sums: the query heads or the key heads.
struct QkNormWeightAttributes {
  std::int64_t first_head = 0;
  std::int64_t heads = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("first_head", first_head);
    v("heads", heads);
  }
};

}  // namespace hone
