// The mixture of experts that takes the place of a decoder layer's MLP: its weights and its forward pass.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "model/model.h"
#include "ops/router/router.h"

namespace hone {

// The names that checkpoints have for the parts of a mixture, after "model.layers.N.".
struct MixtureNames {
  std::string router;   // "mlp.gate"
  std::string experts;  // "mlp.experts"; the index of the expert follows
  std::string gate, up, down;
  std::string shared = {};  // "mlp.shared_experts", if there are some
};

// The losses and the rule by which training balances the load of the experts.
struct MixtureBalance {
  bool router_loss = false;         // the loss of transformers, over all tokens of a micro-batch and all layers
  double router_loss_coef = 0.001;  // its coefficient
  double sequence_alpha = 0;        // coefficient of DeepSeek's loss, over each document and layer; 0: none
};

// The mixture of each layer that has one.
struct ExpertMixture {
  MixtureNames names;
  std::int64_t experts = 0;
  RouterAttributes routing = {};                // the choice of a token's experts, and their weights
  bool correction_bias = false;                 // a bias of each expert's score, without a gradient (deepseek_v3)
  std::int64_t intermediate_size = 0;           // of one expert
  std::int64_t shared_size = 0;                 // of the experts that every token goes to, together; 0: none
  std::int64_t step = 1;                        // every step-th layer has a mixture: those with (layer + 1) % step == 0
  std::vector<std::int64_t> dense_layers = {};  // layers without one in any case
  MixtureBalance balance = {};

  [[nodiscard]] bool is_in(std::int64_t layer) const;
};

// Reads the keys that families with mixtures share; `inner_key` holds the intermediate size of an expert. Throws Error
// with the key, its value and the expected value, also for what hone cannot compute: noise on the router's input.
[[nodiscard]] ExpertMixture parse_mixture(const Json& config, std::string_view inner_key, MixtureNames names);

// Throws Error unless the router's choice is possible: groups that divide the experts, and enough experts in the groups
// that a token may choose from. The message has the names of config.json's keys in DeepSeek's families.
void check_groups(const ExpertMixture& mixture);

// Appends the weights of a layer: the router, one block for gate and up and one for down of all experts, and those of
// the shared experts.
void describe_mixture(const ExpertMixture& mixture, std::int64_t layer, std::int64_t hidden_size,
                      std::vector<WeightSpec>& specs);

// Appends the blocks gate_up and down of an MLP with a gate. `block` and `part` are the beginnings of their names in
// programs and in checkpoints, with the dot.
void describe_gated_mlp(const std::string& block, const std::string& part, std::int64_t hidden_size, std::int64_t inner,
                        std::vector<WeightSpec>& specs);

// Sets the keys that balance the load of experts. The first is for families whose loss is that of transformers
// (mixtral, qwen3_moe), the second for DeepSeek's, where it also makes the biases of routers trainable if they are to
// move. Both throw Error that names a key of the other kind.
void prepare_router_loss(ExpertMixture& mixture, const ModelTraining& training);
void prepare_sequence_balance(ExpertMixture& mixture, std::vector<WeightSpec>& specs, const ModelTraining& training);

// Collects the losses and statistics of a forward pass's routers. They are computed only if the batch learns.
class RouterFigures {
 public:
  RouterFigures(const ExpertMixture& mixture, Batch& batch) : mixture_(mixture), batch_(batch) {}
  // Adds the router of a layer, by its logits [tokens, experts] and its choice.
  void add(std::int64_t layer, Tensor logits, const Routing& routing);
  // Gives the losses to the batch, after the last layer.
  void finish();

 private:
  const ExpertMixture& mixture_;
  Batch& batch_;
  Tensor sums_;              // of transformers' loss: [1, 2 x experts], added over the layers
  Tensor term_;              // of DeepSeek's loss: [tokens], added over the layers
  std::int64_t layers_ = 0;  // layers added so far
};

// For x [tokens, hidden_size]: the sum over a token's experts of weight x down(swiglu(gate_up(x))), plus that of the
// shared experts, which has the weight 1.
[[nodiscard]] Tensor mixture_forward(const ExpertMixture& mixture, std::int64_t layer, WeightBinder& weights, Tensor x,
                                     RouterFigures& figures);

}  // namespace hone
