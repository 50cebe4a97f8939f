// The optimizer of a run: gradients, moments, master weights and the program that updates them all.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/model.h"
#include "model/weights.h"
#include "ops/adamw/adamw.h"
#include "passes/gradient.h"
#include "program/executable.h"

namespace hone {

// What moments are kept in. Without masters, weights of bf16 are rounded stochastically.
enum class Moments : std::uint8_t {
  wide,        // f32, and an f32 master beside a weight of bf16
  as_weights,  // the weights' type, no masters
  codes,       // 8 bits (ops/adamw_8bit), no masters; f32 for weights of less than kLeastCoded elements
};
// As in bitsandbytes.
inline constexpr std::int64_t kLeastCoded = 4096;
inline constexpr std::int64_t kLeastPaged = 100'000;

struct OptimizerOptions {
  AdamwAttributes adamw = {};  // its stream is of no account
  Moments moments = Moments::wide;
  // States of weights with at least kLeastPaged elements lie in the host's memory, where the GPU reads and writes them
  // during the update: it takes their bytes over the bus. The numbers are the same.
  bool paged = false;
  GradientSums gradients = GradientSums::wide;
};

// What one update did.
struct UpdateResult {
  double grad_norm = 0;  // before clipping
  bool applied = true;   // false: the norm was not finite, and the weights are as they were
};

class Optimizer {
 public:
  // `weights` is updated in place; masters, where the options have them, are taken from them now. The decay applies to
  // the weights that decay.
  Optimizer(const Model& model, TensorStore& weights, std::shared_ptr<Arena> arena, const OptimizerOptions& options);

  // Where micro-batches accumulate; zero after every update.
  [[nodiscard]] const TensorStore& gradients() const { return gradients_; }
  // max_grad_norm 0: no clipping.
  UpdateResult update(double learning_rate, double max_grad_norm);
  // Drops what has been accumulated.
  void discard() { gradients_.fill_zero(); }
  // Forgets that a number was not finite, so that the next update counts again.
  void clear_guard();

  [[nodiscard]] std::int64_t steps() const { return steps_; }  // updates that were applied
  // All of them, in the device's memory and in the host's.
  [[nodiscard]] std::array<TensorStore*, 2> states() { return {&states_, &paged_}; }
  // For a resume: the states of a checkpoint have been uploaded into `states()`, and this many updates were applied.
  void set_steps(std::int64_t steps) { steps_ = steps; }
  [[nodiscard]] const Executable& executable() const { return *executable_; }
  void set_profile(std::vector<double>* seconds) { executable_->set_profile(seconds); }

  // The stores' tensors and the update's program, for plans made without a run.
  [[nodiscard]] static std::vector<NamedType> gradient_types(const Model& model, DType dtype,
                                                             const OptimizerOptions& options);
  [[nodiscard]] static std::vector<NamedType> state_types(const Model& model, DType dtype,
                                                          const OptimizerOptions& options);
  [[nodiscard]] static std::vector<NamedType> paged_types(const Model& model, DType dtype,
                                                          const OptimizerOptions& options);
  [[nodiscard]] static Program trace_update(const Model& model, DType dtype, const OptimizerOptions& options);

 private:
  AdamwAttributes attributes_;
  TensorStore gradients_;
  TensorStore states_;
  TensorStore paged_;
  std::optional<Executable> executable_;
  std::int64_t steps_ = 0;
};

}  // namespace hone
