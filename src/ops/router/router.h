// The router of a mixture of experts: which experts a token is sent to, and the weights of their results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

inline constexpr std::int64_t kMostExperts = 1024;  // experts of one router: their scores fit into shared memory

// Indices of the inputs and outputs.
struct RouterIn {
  enum : std::size_t { logits, bias };
};
struct RouterOut {
  enum : std::size_t { expert, weight };
};
struct RouterBackwardIn {
  enum : std::size_t { dweight, logits, expert };
};

struct RouterAttributes {
  std::int64_t top_k = 1;        // experts per token
  bool sigmoid = false;          // scores are sigmoid(logits) instead of softmax(logits)
  std::int64_t groups = 1;       // equal consecutive groups of experts
  std::int64_t top_groups = 1;   // groups that a token may choose from
  std::int64_t group_depth = 1;  // best experts of a group whose scores are added to rank it
  bool normalize = false;        // weights are divided by their sum over the experts of a token
  double factor = 1.0;           // factor of the weights

  template <class Visitor>
  void fields(Visitor& v) {
    v("top_k", top_k);
    v("sigmoid", sigmoid);
    v("groups", groups);
    v("top_groups", top_groups);
    v("group_depth", group_depth);
    v("normalize", normalize);
    v("factor", factor);
  }
};

struct Routing {
  Tensor expert;  // i32 [tokens, top_k], the highest score first
  Tensor weight;  // [tokens, top_k], of the dtype of the logits
};

// Routes by logits [tokens, experts], f32 (or f64), and bias [experts] of the same dtype or none. The bias is added to
// the scores for the choice of groups and experts only. Of equal scores the lowest index wins. Throws Error if the
// sizes do not fit. The gradient is that of the weights with respect to the logits. The loss does not depend on the
// bias; in the place of its gradient, a trainable bias accumulates the number of times that each expert was chosen, by
// which its update rule moves it (ops/expert_bias).
[[nodiscard]] Routing router(Tensor logits, Tensor bias, const RouterAttributes& attributes);

}  // namespace hone
