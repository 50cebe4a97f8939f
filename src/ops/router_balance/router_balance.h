// The loss that balances the load of a mixture's experts: the sum over experts of the share of choices that fell on an
// expert and the mean probability of the expert (Fedus et al., "Switch transformers", 2021). It is computed over
// segments of the tokens: over each document (DeepSeek-V2, 2024, section 2.2.4; DeepSeek-V3, 2024, section 2.1.2), or
// over all tokens (load_balancing_loss_func of transformers).
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs.
struct RouterSumsIn {
  enum : std::size_t { logits, expert, cu_seqlens };
};
struct RouterSumsBackwardIn {
  enum : std::size_t { dsums, logits, cu_seqlens };
};
struct RouterBalanceIn {
  enum : std::size_t { sums, tokens, cu_seqlens };
};
struct RouterBalanceBackwardIn {
  enum : std::size_t { dterm, sums, cu_seqlens };
};

struct RouterSumsAttributes {
  bool sigmoid = false;  // probabilities are sigmoid(logits) divided by their sum instead of softmax(logits)

  template <class Visitor>
  void fields(Visitor& v) {
    v("sigmoid", sigmoid);
  }
};

struct RouterBalanceAttributes {
  std::int64_t layers = 1;  // layers whose sums were added
  double factor = 1.0;      // 1 in transformers, 1 / top_k in DeepSeek's papers

  template <class Visitor>
  void fields(Visitor& v) {
    v("layers", layers);
    v("factor", factor);
  }
};

// Sums over the tokens of each segment: [segments, 2 x experts], first the choices of each expert, then the
// probabilities of each expert, which are added in double in a fixed order. logits: [tokens, experts], f32 (or f64);
// expert: i32 [tokens, top_k]; cu_seqlens: i32 [segments + 1], or none for one segment of all tokens. The sums of a
// document do not depend on other documents. The gradient is that of the probabilities with respect to the logits.
[[nodiscard]] Tensor router_sums(Tensor logits, Tensor expert, Tensor cu_seqlens,
                                 const RouterSumsAttributes& attributes);

// For each token the loss of its segment [tokens]: factor x experts x sum over e of choices[e] x probabilities[e] /
// (layers x tokens of the segment)^2. `tokens` is any i32 [tokens]; sums and cu_seqlens are as in router_sums. If sums
// has one segment, cu_seqlens may have several documents, which are then that segment together.
[[nodiscard]] Tensor router_balance(Tensor sums, Tensor tokens, Tensor cu_seqlens,
                                    const RouterBalanceAttributes& attributes);

}  // namespace hone
