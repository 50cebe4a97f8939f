// Configurations of small models: with a tied head, with transposed matrices, and with experts.
#pragma once

#include "core/json.h"

namespace hone {

inline const Json kQwen3{
    {"model_type", "qwen3"},      {"vocab_size", 30},         {"hidden_size", 16},       {"num_hidden_layers", 2},
    {"num_attention_heads", 2},   {"num_key_value_heads", 1}, {"intermediate_size", 24}, {"head_dim", 8},
    {"tie_word_embeddings", true}};
inline const Json kGpt2{{"model_type", "gpt2"}, {"vocab_size", 30}, {"n_embd", 16},
                        {"n_layer", 2},         {"n_head", 2},      {"n_positions", 32}};
inline const Json kMixtral{{"model_type", "mixtral"}, {"vocab_size", 30},         {"hidden_size", 16},
                           {"num_hidden_layers", 2},  {"num_attention_heads", 2}, {"intermediate_size", 5},
                           {"num_local_experts", 3},  {"num_experts_per_tok", 2}};

}  // namespace hone
