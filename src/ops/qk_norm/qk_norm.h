// RMS normalisation of each query and key head (Dehghani et al., 2023; as in Qwen 3).
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct QkNormIn {
  enum : std::size_t { qkv, q_weight, k_weight };
};
struct QkNormOut {
  enum : std::size_t { y, rstd };
};
struct QkNormInputGradientIn {
  enum : std::size_t { dy, qkv, q_weight, k_weight, rstd };
};
struct QkNormWeightGradientIn {
  enum : std::size_t { dy, qkv, rstd, dweight };
};

struct QkNormAttributes {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double epsilon = 1e-6;

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("kv_heads", kv_heads);
    v("head_dim", head_dim);
    v("epsilon", epsilon);
  }
};

// Returns qkv [rows, (heads + 2 kv_heads) head_dim] with each query head normalised as by rms_norm with q_weight
// [head_dim], each key head with k_weight [head_dim], and the value heads copied. Rows past the count are zero. Throws
// Error if the shapes do not fit.
[[nodiscard]] Tensor qk_norm(Tensor qkv, Tensor q_weight, Tensor k_weight, const QkNormAttributes& attributes);

}  // namespace hone
