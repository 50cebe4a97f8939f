// How a weight moves: the rule of the optimizer, what it keeps beside each weight, and its nodes in the update's
// program.
#pragma once

#include <cstdint>
#include <vector>

#include "model/weight_spec.h"
#include "ops/adamw/adamw.h"
#include "ops/muon/muon.h"
#include "ops/sgd/sgd.h"
#include "passes/gradient.h"
#include "program/tensor_store.h"

namespace hone {

enum class UpdateRule : std::uint8_t {
  adamw,
  sgd,
  muon,  // matrices inside the layers, each that the checkpoint names by itself; AdamW for all else
};

// What AdamW's moments are kept in. Without masters, weights of bf16 are rounded stochastically.
enum class Moments : std::uint8_t {
  wide,        // f32, and an f32 master beside a weight of bf16
  as_weights,  // the weights' type, no masters
  codes,       // 8 bits (ops/adamw_8bit), no masters; f32 for weights of less than kLeastCoded elements
};
// As in bitsandbytes.
inline constexpr std::int64_t kLeastCoded = 4096;
inline constexpr std::int64_t kLeastPaged = 100'000;

struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t steps = 5;  // Newton-Schulz iterations
  MuonScale scale = MuonScale::match_rms_adamw;
  double rate_ratio = 1;  // of the matrices' learning rate to that of all else
};

struct OptimizerOptions {
  UpdateRule rule = UpdateRule::adamw;
  // Its stream is of no account; decay and seed are those of every rule.
  AdamwAttributes adamw = {};
  SgdAttributes sgd = {};  // momentum, dampening and nesterov alone
  MuonOptions muon = {};
  Moments moments = Moments::wide;  // sgd and muon: wide
  bool masters = true;              // f32 beside weights of bf16, where moments are wide
  // States of weights with at least kLeastPaged elements lie in the host's memory, where the GPU reads and writes them
  // during the update: it takes their bytes over the bus. The numbers are the same.
  bool paged = false;
  GradientSums gradients = GradientSums::wide;
};

[[nodiscard]] bool has_masters(DType dtype, const OptimizerOptions& options);

// The tensors of a weight's update.
struct UpdatedWeight {
  Tensor weight;
  Tensor gradient;
  std::vector<Tensor> states;  // as states_of has them
};

// How weights of one kind move, whatever the run's optimizer: a router's bias that balances its experts. It keeps what
// it needs; it has no master unless it makes one.
class OwnUpdateRule {
 public:
  virtual ~OwnUpdateRule() = default;
  [[nodiscard]] virtual std::vector<NamedType> states(const WeightSpec& spec, const Type& weight,
                                                      const OptimizerOptions& options) const = 0;
  // `attributes`: decay, seed and stream as this weight has them.
  virtual void append(const WeightSpec& spec, const UpdatedWeight& tensors, const AdamwStep& step,
                      const AdamwAttributes& attributes) const = 0;
};

// The states of one weight, by what each is of it; a master is the last.
[[nodiscard]] std::vector<NamedType> states_of(const WeightSpec& spec, const Type& weight,
                                               const OptimizerOptions& options);

// Appends the update of one weight. `stream`: of its random numbers.
void append_update(const WeightSpec& spec, const UpdatedWeight& tensors, const AdamwStep& step,
                   const OptimizerOptions& options, std::int64_t stream);

}  // namespace hone
