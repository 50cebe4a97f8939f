#include "cli/bench/models.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kModels{{
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
    {"llama-3.1-70b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672,
      "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false})"},
    {"qwen3-30b-a3b", R"({"model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048,
      "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
      "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
      "tie_word_embeddings": false})"},
    {"deepseek-v2-lite", R"({"model_type": "deepseek_v2", "vocab_size": 102400, "hidden_size": 2048,
      "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16,
      "num_key_value_heads": 16, "kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2,
      "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1, "topk_method": "greedy",
      "n_group": 1, "topk_group": 1, "scoring_func": "softmax", "norm_topk_prob": false, "routed_scaling_factor": 1.0,
      "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
      "tie_word_embeddings": false})"},
    {"quickstart", R"({"model_type": "qwen2", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 384,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
      "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true})"},
    {"small", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 384, "num_hidden_layers": 6, "n_head": 6,
      "n_positions": 512, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0})"},
    {"medium", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "num_hidden_layers": 12, "n_head": 12,
      "n_positions": 512, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0})"},
    {"large", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 1024, "num_hidden_layers": 24, "n_head": 16,
      "n_positions": 512, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0})"},
    {"xl", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 1280, "num_hidden_layers": 36, "n_head": 20,
      "n_positions": 512, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0})"},
    {"1.5b", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 1536, "num_hidden_layers": 48, "n_head": 12,
      "n_positions": 512, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0})"},
    {"3b", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 2560, "num_hidden_layers": 32, "n_head": 20,
      "n_positions": 512, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0})"},
    {"7b", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 4096, "num_hidden_layers": 25, "n_head": 32,
      "n_positions": 1024, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0})"},
    {"13b", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 5120, "num_hidden_layers": 32, "n_head": 40,
      "n_positions": 1024, "n_inner": 19840, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0})"},
}};

// Batch sizes and sequence lengths of the published figures that the GPT table is compared with.
constexpr std::array<GptTableRow, 8> kGptTable{{
    {"small", 16, 512, false},
    {"medium", 16, 512, false},
    {"large", 8, 512, false},
    {"xl", 4, 512, false},
    {"1.5b", 4, 512, true},
    {"3b", 2, 512, true},
    {"7b", 8, 1024, true},
    {"13b", 4, 1024, true},
}};

}  // namespace

std::span<const GptTableRow> gpt_table() { return kGptTable; }

std::vector<std::string> bench_model_names() {
  std::vector<std::string> names;
  names.reserve(std::size(kModels));
  for (const auto& [name, config] : kModels) names.emplace_back(name);
  return names;
}

std::string bench_model_config(std::string_view name) {
  for (const auto& [known, config] : kModels) {
    if (known == name) return std::string(config);
  }
  throw Error("model", text_of("unknown model ", name), "known: " + join(bench_model_names(), ", "));
}

}  // namespace hone
