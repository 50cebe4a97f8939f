// The decoder that Llama and its descendants share: pre-norm, rotary positions, grouped-query attention and a gated
// MLP. DecoderOptions describes the differences between families.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "model/mixture.h"
#include "model/model.h"
#include "ops/rope/rope.h"

namespace hone {

struct DecoderConfig {
  ModelShape shape;
  std::int64_t intermediate_size = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  RopeTableAttributes rope;
};

// The differences between families.
struct DecoderOptions {
  bool qkv_bias = false;                      // biases on q, k and v (qwen2)
  bool qk_norm = false;                       // RMS norm on each head of q and k (qwen3)
  std::optional<ExpertMixture> mixture = {};  // takes the place of the MLP in its layers (qwen3_moe, mixtral)
  bool default_tied = false;                  // value of tie_word_embeddings if config.json does not set it
  double default_epsilon = 1e-6;              // value of rms_norm_eps if config.json does not set it
  double default_theta = 10000.0;             // value of rope_theta if config.json does not set it
};

// Reads the keys of config.json that the families share. Throws Error with the key, its value and the expected value.
[[nodiscard]] DecoderConfig parse_decoder_config(const Json& config, const DecoderOptions& options);

// Builds a decoder from config.json. Throws Error as parse_decoder_config() does.
[[nodiscard]] std::unique_ptr<Model> make_decoder(const Json& config, const DecoderOptions& options);

}  // namespace hone
