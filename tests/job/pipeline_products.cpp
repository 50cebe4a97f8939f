#include "job/pipeline_products.h"

namespace hone::test::products {

Configs families() {
  return {{"llama", SmallModel{.type = "llama", .layers = 4}.config()},
          {"llama odd", SmallModel{.type = "llama", .tied = true, .layers = 4, .vocabulary = 309}.config()},
          {"qwen2", SmallModel{.type = "qwen2", .tied = true, .layers = 4}.config()},
          {"gpt2", SmallModel{.type = "gpt2", .layers = 4}.config()}};
}

Configs mixtures() {
  const std::string shared =
      R"("vocab_size": 308, "hidden_size": 32, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
         "rope_theta": 10000.0, "initializer_range": 0.05, "tie_word_embeddings": false, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 4, "num_experts_per_tok": 2, )";
  return {{"qwen3_moe", "{" + shared + R"("model_type": "qwen3_moe", "head_dim": 8, "num_experts": 4,
             "moe_intermediate_size": 24, "intermediate_size": 48, "norm_topk_prob": true, "mlp_only_layers": [1],
             "output_router_logits": true, "router_aux_loss_coef": 0.01})"},
          {"mixtral", "{" + shared + R"("model_type": "mixtral", "num_local_experts": 4, "intermediate_size": 40})"},
          {"deepseek_v3", "{" + shared + R"("model_type": "deepseek_v3", "n_routed_experts": 4,
             "n_shared_experts": 1, "n_group": 2, "topk_group": 2, "first_k_dense_replace": 1,
             "moe_intermediate_size": 16, "intermediate_size": 40, "norm_topk_prob": true,
             "routed_scaling_factor": 1.5, "kv_lora_rank": 20, "q_lora_rank": 24, "qk_nope_head_dim": 16,
             "qk_rope_head_dim": 8, "v_head_dim": 12, "num_nextn_predict_layers": 1, "head_dim": 8})"}};
}

}  // namespace hone::test::products
