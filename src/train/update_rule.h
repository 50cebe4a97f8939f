// Update rules of weights: the optimizer's rule, the states that it keeps for each weight, and its nodes in the update
// program.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model.h"
#include "model/weight_spec.h"
#include "ops/adamw/adamw.h"
#include "ops/muon/muon.h"
#include "ops/sgd/sgd.h"
#include "passes/gradient.h"
#include "program/tensor_store.h"

namespace hone {

enum class UpdateRule : std::uint8_t {
  kAdamw,
  kSgd,
  kMuon,  // Muon for the matrices of the layers, each matrix of the checkpoint separately; AdamW for all other weights
};

// Format of AdamW's moments. Without f32 master weights, updates of bf16 weights are rounded stochastically.
enum class MomentFormat : std::uint8_t {
  kWide,       // f32, with f32 master weights for bf16 weights
  kAsWeights,  // dtype of the weights, no master weights
  kInt8,       // 8 bits (ops/adamw_8bit), no master weights; f32 for weights with fewer than kMin8BitElements elements
};
// Smallest numbers of elements of weights whose states are in 8 bits and in host memory, as in bitsandbytes.
inline constexpr std::int64_t kMin8BitElements = 4096;
inline constexpr std::int64_t kMinPagedElements = 100'000;

struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t steps = 5;  // Newton-Schulz iterations
  MuonScale scale = MuonScale::kMatchRmsAdamw;
  double rate_ratio = 1;  // learning rate of the matrices / learning rate of other weights
};

struct OptimizerOptions {
  UpdateRule rule = UpdateRule::kAdamw;
  // weight_decay and seed apply to every rule; stream is ignored.
  AdamwAttributes adamw = {};
  SgdAttributes sgd = {};  // only momentum, dampening and nesterov are used
  MuonOptions muon = {};
  MomentFormat moments = MomentFormat::kWide;  // sgd and muon: wide
  bool masters = true;                         // f32 master weights for bf16 weights, if moments are wide
  // Keeps the states of weights with at least kMinPagedElements elements in host memory. The GPU reads and writes them
  // over the bus during the update. The results are the same.
  bool paged = false;
  GradientAccumulation gradients = GradientAccumulation::kWide;
  bool overwrites = false;  // the loss programs are compiled with overwritten_gradients()
  // The update of one rank of several, each of which has the states of its share of the weights (train/shards.h).
  int ranks = 1;
  int rank = 0;
  bool divided_gradients = false;  // each rank has the gradients of its share only
  bool divided_weights = false;    // and the weights
  bool in_tensor_group = false;    // the model is a rank's part of one (model/tensor_parallel_model.h)
  int expert_ranks = 1;            // of an expert group, if the model is that of one (model/expert_parallel_model.h)
};

// Returns true if weights of this dtype have f32 master weights.
[[nodiscard]] bool has_masters(DType dtype, const OptimizerOptions& options);

// Tensors of the update of one weight.
struct UpdatedWeight {
  Tensor weight;
  Tensor gradient;
  std::vector<Tensor> states;  // in the order of states_of
};

// Update rule for one kind of weight that replaces the optimizer of the run, for example for a router bias that
// balances experts. It declares all states that it needs; there is no master weight unless it declares one.
class WeightUpdateRule {
 public:
  virtual ~WeightUpdateRule() = default;
  // Returns the names and types of the states of a weight.
  [[nodiscard]] virtual std::vector<NamedType> states(const WeightSpec& spec, const Type& weight,
                                                      const OptimizerOptions& options) const = 0;
  // Returns true if `gradient` holds a gradient, which counts in the norm by which gradients are clipped.
  [[nodiscard]] virtual bool has_gradient() const { return true; }
  // Appends the update of a weight. attributes: weight_decay, seed and stream are those of this weight.
  virtual void append(const WeightSpec& spec, const UpdatedWeight& tensors, const AdamwStep& step,
                      const AdamwAttributes& attributes) const = 0;
};

// Returns the names and types of the states of a weight, such as "exp_avg"; "master" is the last one.
[[nodiscard]] std::vector<NamedType> states_of(const WeightSpec& spec, const Type& weight,
                                               const OptimizerOptions& options);

// Returns the gradients that the update does not clear, because the loss programs overwrite them: those of matrices of
// linear layers and of experts, without those of adapters. Empty unless options.overwrites.
[[nodiscard]] OverwrittenGradients overwritten_gradients(const Model& model, const OptimizerOptions& options);

// Appends the update of one weight to the program. stream: index of its random stream. first, count: elements that are
// updated (AdamwAttributes); count 0: all.
void append_update(const WeightSpec& spec, const UpdatedWeight& tensors, const AdamwStep& step,
                   const OptimizerOptions& options, std::int64_t stream, std::int64_t first = 0,
                   std::int64_t count = 0);

}  // namespace hone
