// FLOPs of a model by its definition, for the MFU.
#pragma once

#include "model/model.h"

namespace hone {

// Returns the model's FLOPs per token, forward and backward, without recomputation: 6 for each parameter except those
// of an untied input embedding and of experts that the token is not sent to, plus 6 x layers x width x length for
// causal attention, where width is heads x the mean size of a key and a value. length: of the token's document,
// averaged over the tokens.
[[nodiscard]] double model_flops_per_token(const Model& model, double length);

}  // namespace hone
