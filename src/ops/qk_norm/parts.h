// What the operations of qk_norm share beyond their header.
#pragma once

#include <cstdint>

namespace hone {

// Which heads of a row share the weight of a qk_norm_weight_gradient.
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
