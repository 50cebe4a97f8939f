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

// The mixture of each layer that has one.
struct ExpertMixture {
  MixtureNames names;
  std::int64_t experts = 0;
  RouterAttributes routing = {};                // the choice of a token's experts, and their weights
  bool correction_bias = false;                 // a bias of each expert's score, which is not trained (deepseek_v3)
  std::int64_t intermediate_size = 0;           // of one expert
  std::int64_t shared_size = 0;                 // of the experts that every token goes to, together; 0: none
  std::int64_t step = 1;                        // every step-th layer has a mixture: those with (layer + 1) % step == 0
  std::vector<std::int64_t> dense_layers = {};  // layers without one in any case

  [[nodiscard]] bool is_in(std::int64_t layer) const;
};

// Reads the keys that families with mixtures share; `inner_key` holds the intermediate size of an expert. Throws Error
// with the key, its value and the expected value, also for what hone cannot compute: an auxiliary loss of the router,
// noise on its input.
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

// For x [tokens, hidden_size]: the sum over a token's experts of weight x down(swiglu(gate_up(x))), plus that of the
// shared experts, which has the weight 1.
[[nodiscard]] Tensor mixture_forward(const ExpertMixture& mixture, std::int64_t layer, WeightBinder& weights, Tensor x);

}  // namespace hone
