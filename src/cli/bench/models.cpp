#include "cli/bench/models.h"

#include <array>
#include <utility>

#include "core/error.h"

namespace hone {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kModels{{
    {"qwen2.5-0.5b", R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
      "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32768,
      "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": true})"},
    {"qwen2.5-1.5b", R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960,
      "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": true})"},
    {"qwen2.5-7b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
      "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": false})"},
    {"llama-3.1-8b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false})"},
    {"quickstart", R"({"model_type": "qwen2", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 384,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
      "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true})"},
}};

}  // namespace

std::string bench_model_config(std::string_view name) {
  std::string names;
  for (const auto& [known, config] : kModels) {
    if (known == name) return std::string(config);
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  throw Error("model", text_of("there is no model ", name), "known are " + names);
}

}  // namespace hone
