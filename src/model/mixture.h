// The mixture of experts that takes the place of a decoder layer's MLP: its weights and its forward pass.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "model/model.h"

namespace hone {

// The names that checkpoints have for the parts of a mixture, after "model.layers.N.".
struct MixtureNames {
  std::string router;   // "mlp.gate"
  std::string experts;  // "mlp.experts"; the index of the expert follows
  std::string gate, up, down;
};

// The mixture of each layer that has one.
struct ExpertMixture {
  MixtureNames names;
  std::int64_t experts = 0;
  std::int64_t top_k = 0;                       // experts per token
  std::int64_t intermediate_size = 0;           // of one expert
  bool normalize = false;                       // the weights of a token's experts have the sum 1
  std::int64_t step = 1;                        // every step-th layer has a mixture: those with (layer + 1) % step == 0
  std::vector<std::int64_t> dense_layers = {};  // layers without one in any case

  [[nodiscard]] bool is_in(std::int64_t layer) const;
};

// Reads the keys that families with mixtures share; `inner_key` holds the intermediate size of an expert. Throws Error
// with the key, its value and the expected value, also for what hone cannot compute: an auxiliary loss of the router,
// noise on its input.
[[nodiscard]] ExpertMixture parse_mixture(const Json& config, std::string_view inner_key, MixtureNames names);

// Appends the weights of a layer: the router, and one block for gate and up and one for down of all experts.
void describe_mixture(const ExpertMixture& mixture, std::int64_t layer, std::int64_t hidden_size,
                      std::vector<WeightSpec>& specs);

// For x [tokens, hidden_size]: the sum over a token's experts of weight x down(swiglu(gate_up(x))).
[[nodiscard]] Tensor mixture_forward(const ExpertMixture& mixture, std::int64_t layer, WeightBinder& weights, Tensor x);

}  // namespace hone
