// Loops of attention over the scores of one query, for the vectors of the machine.
#pragma once

#include <cstdint>

#include "backend/cpu/vector_math.h"

namespace hone {

// weights[j] = e^(weights[j] - greatest)
void exponentials(float* weights, std::int64_t count, float greatest);
inline void exponentials(double* weights, std::int64_t count, double greatest) {
  for (std::int64_t j = 0; j < count; ++j) weights[j] = vexp(weights[j] - greatest);
}

// Replaces scores by weights, e^(scale score - lse), and the gradients of the weights by those of the scores, scale
// weight (gradient - overlap).
void softmax_gradient(float* weights, float* gradient, std::int64_t count, float scale, float lse, float overlap);
inline void softmax_gradient(double* weights, double* gradient, std::int64_t count, double scale, double lse,
                             double overlap) {
  for (std::int64_t j = 0; j < count; ++j) {
    weights[j] = vexp(weights[j] * scale - lse);
    gradient[j] = weights[j] * (gradient[j] - overlap) * scale;
  }
}

}  // namespace hone
