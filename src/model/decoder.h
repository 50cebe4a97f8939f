// The decoder that Llama and its descendants share: pre-norm, rotary positions, grouped queries, gated MLP. A family
// says by DecoderOptions where it differs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
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

// Where families differ.
struct DecoderOptions {
  bool qkv_bias = false;      // biases on q, k and v (qwen2)
  bool qk_norm = false;       // RMS norm on each head of q and k (qwen3)
  bool default_tied = false;  // tie_word_embeddings where config.json does not say
};

// Reads the keys that the families share. Throws Error naming the key, what it is and what was expected.
[[nodiscard]] DecoderConfig parse_decoder_config(const Json& config, const DecoderOptions& options);

[[nodiscard]] std::unique_ptr<Model> make_decoder(const Json& config, const DecoderOptions& options);

}  // namespace hone
