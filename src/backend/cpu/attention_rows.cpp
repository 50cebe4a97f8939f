#include "backend/cpu/attention_rows.h"

#include <algorithm>
#include <limits>

namespace hone {
namespace {

// Numbers of the sixteen lanes of a reduction: two vectors of AVX2 or one of AVX-512.
using Lanes16 = float __attribute__((vector_size(64), aligned(4), may_alias));
using Lanes8 = float __attribute__((vector_size(32)));
using Lanes4 = float __attribute__((vector_size(16)));

}  // namespace

HONE_VECTOR_CLONES SoftmaxStep<float> softmax_step(float* scores, std::int64_t count, float scale, float before) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (std::int64_t j = 0; j < count; ++j) scores[j] *= scale;
  const std::int64_t lanes = (count + 15) / 16 * 16;
  for (std::int64_t j = count; j < lanes; ++j) scores[j] = kNone;

  Lanes16 most = Lanes16{} + kNone;
  for (std::int64_t j = 0; j < lanes; j += 16) {
    const Lanes16 score = *reinterpret_cast<const Lanes16*>(scores + j);
    most = score > most ? score : most;
  }
  const Lanes8 low = __builtin_shufflevector(most, most, 0, 1, 2, 3, 4, 5, 6, 7);
  const Lanes8 high = __builtin_shufflevector(most, most, 8, 9, 10, 11, 12, 13, 14, 15);
  const Lanes8 most8 = low > high ? low : high;
  const Lanes4 low4 = __builtin_shufflevector(most8, most8, 0, 1, 2, 3);
  const Lanes4 high4 = __builtin_shufflevector(most8, most8, 4, 5, 6, 7);
  const Lanes4 most4 = low4 > high4 ? low4 : high4;
  const float here = std::max(std::max(most4[0], most4[1]), std::max(most4[2], most4[3]));
  const float greatest = here > before ? here : before;

  for (std::int64_t j = 0; j < lanes; ++j) scores[j] = vexp(scores[j] - greatest);

  Lanes16 sum{};
  for (std::int64_t j = 0; j < lanes; j += 16) sum += *reinterpret_cast<const Lanes16*>(scores + j);
  const Lanes8 eight = __builtin_shufflevector(sum, sum, 0, 1, 2, 3, 4, 5, 6, 7) +
                       __builtin_shufflevector(sum, sum, 8, 9, 10, 11, 12, 13, 14, 15);
  const Lanes4 four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return {greatest, (four[0] + four[2]) + (four[1] + four[3])};
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
