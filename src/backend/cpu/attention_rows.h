// Loops of attention over the scores of one query, for the vectors of the machine.
#pragma once

#include <cstdint>

#include "backend/cpu/vector_math.h"

namespace hone {

// Result of a step of the online softmax: the greatest score so far and the sum of the weights of the step.
template <class Real>
struct SoftmaxStep {
  Real greatest, sum;
};

// Replaces the scores of a query by weights, e^(scale score - greatest), where `greatest` is the greatest scaled score
// of `before` and of these. The weights are summed in sixteen lanes, as sum16() does. Writes up to the next multiple of
// 16: the elements past `count` become 0.
SoftmaxStep<float> softmax_step(float* scores, std::int64_t count, float scale, float before);
inline SoftmaxStep<double> softmax_step(double* scores, std::int64_t count, double scale, double before) {
  for (std::int64_t j = 0; j < count; ++j) scores[j] *= scale;
  const double here = max16(scores, count);
  const double greatest = here > before ? here : before;
  for (std::int64_t j = 0; j < count; ++j) scores[j] = vexp(scores[j] - greatest);
  return {greatest, sum16(scores, count)};
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
