// The update of the biases by which a router balances the load of its experts without a loss (DeepSeek-V3, 2024,
// section 2.1.2; Wang et al., "Auxiliary-loss-free load balancing strategy for mixture-of-experts", 2024).
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct ExpertBiasIn {
  enum : std::size_t { bias, load, bad };
};
struct ExpertBiasOut {
  enum : std::size_t { bias, load };
};

struct ExpertBiasAttributes {
  double speed = 0;  // change of a bias

  template <class Visitor>
  void fields(Visitor& v) {
    v("speed", speed);
  }
};

struct ExpertBiasTensors {
  Tensor bias;  // f32 [experts] (or f64)
  Tensor load;  // the same type: the choices of each expert in a step (ops/expert_load)
};

// bias += speed x sign(mean load - load), in place; the load becomes zero. If bad i32 [1] is not 0, only the load
// changes. The mean is compared exactly, as load x experts with the sum of the loads.
ExpertBiasTensors expert_bias(const ExpertBiasTensors& tensors, Tensor bad, const ExpertBiasAttributes& attributes);

}  // namespace hone
