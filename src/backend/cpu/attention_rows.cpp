#include "backend/cpu/attention_rows.h"

namespace hone {

HONE_VECTOR_CLONES void exponentials(float* weights, std::int64_t count, float greatest) {
  for (std::int64_t j = 0; j < count; ++j) weights[j] = vexp(weights[j] - greatest);
}

HONE_VECTOR_CLONES void softmax_gradient(float* __restrict weights, float* __restrict gradient, std::int64_t count,
                                         float scale, float lse, float overlap) {
  for (std::int64_t j = 0; j < count; ++j) {
    const float weight = vexp(weights[j] * scale - lse);
    weights[j] = weight;
    gradient[j] = weight * (gradient[j] - overlap) * scale;
  }
}

}  // namespace hone
