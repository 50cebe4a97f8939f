// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), as torch.optim.AdamW computes it.
#pragma once

#include <cstddef>
#include <span>

#include "program/op.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct AdamwIn {
  enum : std::size_t { weight, gradient, m, v, master, norm, hyper, bad };
};
struct AdamwOut {
  enum : std::size_t { weight, gradient, m, v, master };
};

struct AdamwAttributes {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  std::int64_t seed = 0;    // of stochastic rounding
  std::int64_t stream = 0;  // of stochastic rounding; different for each weight
  // Elements of the flattened weight and its gradient that are updated, and that the states consist of; count 0: all.
  // `first` is a multiple of 256. The gradient of other elements is not cleared. A weight or a gradient of `count`
  // elements has these elements alone.
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool clears = true;  // the gradient is zero afterwards; false: it stays, for a micro-batch that overwrites it

  template <class Visitor>
  void fields(Visitor& v) {
    v("beta1", beta1);
    v("beta2", beta2);
    v("epsilon", epsilon);
    v("weight_decay", weight_decay);
    v("seed", seed);
    v("stream", stream);
    v("first", first);
    v("count", count);
    v("clears", clears);
  }

  // Returns the number of elements that are updated, of `elements`.
  [[nodiscard]] std::int64_t updated(std::int64_t elements) const { return count == 0 ? elements : count; }
  // Returns the index of the first updated element in a weight or a gradient of `elements`.
  [[nodiscard]] std::int64_t start_in(std::int64_t elements) const { return elements == count ? 0 : first; }
};

// Indices into the input `hyper` [kAdamwHypers], which changes from step to step; t counts steps from 1. The other
// entries are reserved.
enum class AdamwHyper : std::uint8_t {
  kLearningRate,
  kCorrection1,  // 1 / (1 - beta1^t)
  kCorrection2,  // 1 / sqrt(1 - beta2^t)
  kMaxGradNorm,  // limit of the gradients' norm; 0: no clipping
  kStep,         // t
};
inline constexpr std::int64_t kAdamwHypers = 8;

// A weight and its optimizer state. Gradient, m, v and master are f32 (f64 for a weight of f64). With a bf16 weight,
// the gradient may be bf16, and so may m and v together; bf16 moments are rounded stochastically (their expectation is
// the unrounded number), and so is a bf16 weight without a master.
struct AdamwTensors {
  Tensor weight;
  Tensor gradient;
  Tensor m;
  Tensor v;
  Tensor master;  // optional, for a bf16 weight, which is then the master rounded to nearest
};

// Inputs that all weights of a step share.
struct AdamwStep {
  Tensor norm;   // [1], over all gradients, which are scaled by min(1, max_grad_norm / (norm + 1e-6))
  Tensor hyper;  // [kAdamwHypers]
  Tensor bad;  // i32[1], from guard(): if it is not 0, nothing changes but the gradient, which is cleared all the same
};

// Returns the cost of an update whose second output is the gradient, which is not written unless `clears`.
[[nodiscard]] Cost update_cost(Cost cost, std::span<const Type> outputs, bool clears);
// Returns the shape of the states of `count` elements of a weight, which are whole rows; 0: of all. Throws Error if
// they are not.
[[nodiscard]] Shape updated_shape(Shape weight, std::int64_t count);
// Returns the shape that the gradient of a weight has: that of the states if it has only the updated rows, otherwise
// that of the weight.
[[nodiscard]] Shape gradient_shape(const Shape& weight, const Shape& gradient, std::int64_t count);

// Appends the update of a weight and its state, in place, and returns the updated tensors; with attributes.clears the
// gradient is zero afterwards, for the next accumulation. Throws Error if the types do not fit.
AdamwTensors adamw(const AdamwTensors& tensors, const AdamwStep& step, const AdamwAttributes& attributes);

}  // namespace hone
