// Copies each token's row to the experts that it was sent to.
#pragma once

#include <cstddef>

#include "ops/expert_order/expert_order.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs.
struct ExpertDispatchIn {
  enum : std::size_t { x, position };
};
struct ExpertDispatchBackwardIn {
  enum : std::size_t { dy, position };
};

// Returns y [top_k x tokens, n], y[position[t, j]] = x[t], for x [tokens, n] of any floating type and position i32
// [tokens, top_k] (ops/expert_order). The gradient of x[t] is the sum over j in ascending order, rounded once.
[[nodiscard]] Tensor expert_dispatch(Tensor x, Tensor position);
// The same for the position of expert_order_part(): returns the rows of the part, counted by part.count. Choices of
// other experts have none and add nothing to the gradient.
[[nodiscard]] Tensor expert_dispatch_part(Tensor x, Tensor position, const ExpertPartAttributes& part);

}  // namespace hone
