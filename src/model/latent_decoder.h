// The decoder of DeepSeek-V2 and V3: pre-norm, multi-head latent attention (DeepSeek-V2, 2024, section 2.1), an MLP in
// the first layers and a mixture with shared experts in the others. The families differ in the router and in the pairs
// of rotary positions.
#pragma once

#include <memory>

#include "core/json.h"
#include "model/mixture.h"
#include "model/model.h"

namespace hone {

struct LatentDecoderOptions {
  ExpertMixture mixture;
  bool interleaved = true;       // rotary pairs are elements 2i and 2i + 1
  bool predicts_tokens = false;  // checkpoints may have layers after the last one that predict further tokens (V3)
};

// Reads the keys of the mixture that the families share, and its names. The caller sets the router's choice: scores,
// groups, norm, bias. Throws Error with the key, its value and the expected value.
[[nodiscard]] ExpertMixture parse_latent_mixture(const Json& config);

// Builds the decoder from config.json. Throws Error naming the key if the configuration is incomplete, contradictory or
// not supported.
[[nodiscard]] std::unique_ptr<Model> make_latent_decoder(const Json& config, LatentDecoderOptions options);

}  // namespace hone
