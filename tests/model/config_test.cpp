// Tests of valid and invalid values in config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "core/json_value.h"
#include "model/registry.h"

namespace hone {
namespace {

Json small_config() {
  return {{"model_type", "llama"},  {"vocab_size", 300},        {"hidden_size", 64},
          {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"intermediate_size", 80}};
}

std::string error_with(const char* key, const Json& value) {
  Json config = small_config();
  config[key] = value;
  try {
    (void)family_registry().create(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Config, CountsItsParameters) {
  // Embedding and head; two layers with four attention matrices, three MLP matrices and two norms; the final norm.
  const std::int64_t expected = 2 * 300 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 80 + 2 * 64) + 64;
  EXPECT_EQ(parameter_count(*family_registry().create(small_config())), expected);
}

TEST(Config, RefusesWhatCannotBeComputedWith) {
  EXPECT_THAT(error_with("num_hidden_layers", 1'000'000'000), testing::HasSubstr("num_hidden_layers 1000000000"));
  EXPECT_THAT(error_with("intermediate_size", 10'000'000'000),
              testing::HasSubstr("'intermediate_size' is 10000000000"));
  EXPECT_THAT(error_with("vocab_size", 0), testing::HasSubstr("'vocab_size' is 0, expected a positive integer"));
  EXPECT_THAT(error_with("vocab_size", "many"), testing::HasSubstr("'vocab_size' is \"many\""));
  EXPECT_THAT(error_with("hidden_size", 66), testing::HasSubstr("no multiple of num_attention_heads"));
  Json config = small_config();
  config["vocab_size"] = config["intermediate_size"] = 1'000'000'000;
  config["hidden_size"] = 100'000'000;
  config["head_dim"] = 64;
  EXPECT_THROW((void)family_registry().create(config), Error);
}

std::string mixture_error(const Json& changes) {
  Json config = small_config();
  config["num_experts"] = 6;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 24;
  config["model_type"] = "qwen3_moe";
  config.update(changes);
  try {
    (void)family_registry().create(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Config, CountsTheParametersOfAMixture) {
  Json config = small_config();
  config["model_type"] = "mixtral";
  config["num_local_experts"] = 6;
  config["num_experts_per_tok"] = 2;
  // As above, with a router and six MLPs in each layer.
  const std::int64_t layer = 4 * 64 * 64 + 6 * (64 + 3 * 64 * 80) + 2 * 64;
  EXPECT_EQ(parameter_count(*family_registry().create(config)), 2 * 300 * 64 + 2 * layer + 64);
}

TEST(Config, RefusesMixturesThatCannotBeComputedWith) {
  using testing::HasSubstr;
  EXPECT_EQ(mixture_error(Json::object()), "no error");
  EXPECT_EQ(mixture_error({{"mlp_only_layers", {1}}, {"decoder_sparse_step", 2}}), "no error");
  EXPECT_THAT(mixture_error({{"num_experts", nullptr}}), HasSubstr("'num_local_experts' is missing"));
  EXPECT_THAT(mixture_error({{"num_experts", 0}}), HasSubstr("'num_experts' is 0, expected a positive integer"));
  EXPECT_THAT(mixture_error({{"num_experts", 2000}}), HasSubstr("'num_experts' is 2000, expected up to 1024"));
  EXPECT_THAT(mixture_error({{"num_local_experts", 8}}), HasSubstr("'num_experts' is 6, but 'num_local_experts' is 8"));
  EXPECT_THAT(mixture_error({{"num_experts_per_tok", 7}}),
              HasSubstr("'num_experts_per_tok' is 7, expected up to the 6 experts of a layer"));
  EXPECT_THAT(mixture_error({{"mlp_only_layers", {0, -1}}}), HasSubstr("'mlp_only_layers' is [0,-1], expected a list"));
  EXPECT_THAT(mixture_error({{"mlp_only_layers", 1}}), HasSubstr("'mlp_only_layers' is 1, expected a list"));
  EXPECT_EQ(mixture_error({{"output_router_logits", true}}), "no error");
  EXPECT_THAT(mixture_error({{"router_jitter_noise", 0.1}}), HasSubstr("'router_jitter_noise' is 0.1, expected 0"));
  EXPECT_THAT(mixture_error({{"model_type", "mixtral"}, {"sliding_window", 4096}}),
              HasSubstr("'sliding_window' is 4096, expected null"));
}

Json deepseek_config(const char* type) {
  Json config = small_config();
  config.update({{"model_type", type},
                 {"q_lora_rank", 24},
                 {"kv_lora_rank", 20},
                 {"qk_nope_head_dim", 16},
                 {"qk_rope_head_dim", 8},
                 {"v_head_dim", 12},
                 {"n_routed_experts", 8},
                 {"n_shared_experts", 2},
                 {"num_experts_per_tok", 3},
                 {"moe_intermediate_size", 10},
                 {"n_group", 4},
                 {"topk_group", 2},
                 {"first_k_dense_replace", 1},
                 {"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}}}});
  return config;
}

// The error of a configuration of deepseek_v3, or of the family in `changes`, from which `missing` is erased.
std::string deepseek_error(const Json& changes, const char* missing = "") {
  Json config = deepseek_config("deepseek_v3");
  config.update(changes);
  config.erase(missing);
  try {
    (void)family_registry().create(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Config, CountsTheParametersOfDeepseek) {
  const std::int64_t attention = 24 * 64 + 24 + 4 * 24 * 24 + (20 + 8) * 64 + 20 + 4 * (16 + 12) * 20 + 64 * 4 * 12;
  const std::int64_t dense = attention + 3 * 64 * 80 + 2 * 64;
  const std::int64_t mixture = attention + 8 * (64 + 3 * 64 * 10) + 3 * 64 * 20 + 2 * 64;
  const std::int64_t rest = 2 * 300 * 64 + 64;
  const std::unique_ptr<Model> v2 = family_registry().create(deepseek_config("deepseek_v2"));
  EXPECT_EQ(parameter_count(*v2), dense + mixture + rest);
  const std::unique_ptr<Model> v3 = family_registry().create(deepseek_config("deepseek_v3"));
  EXPECT_EQ(parameter_count(*v3), dense + mixture + rest + 8);  // with the biases of the experts
  EXPECT_EQ(trained_parameter_count(*v3), dense + mixture + rest);
}

// The sizes of deepseek-ai/DeepSeek-V3, without its layer for multi-token prediction.
TEST(Config, CountsTheParametersOfDeepseekV3) {
  Json config = deepseek_config("deepseek_v3");
  config.update({{"vocab_size", 129280},
                 {"hidden_size", 7168},
                 {"num_hidden_layers", 61},
                 {"intermediate_size", 18432},
                 {"moe_intermediate_size", 2048},
                 {"num_attention_heads", 128},
                 {"q_lora_rank", 1536},
                 {"kv_lora_rank", 512},
                 {"qk_nope_head_dim", 128},
                 {"qk_rope_head_dim", 64},
                 {"v_head_dim", 128},
                 {"n_routed_experts", 256},
                 {"n_shared_experts", 1},
                 {"num_experts_per_tok", 8},
                 {"n_group", 8},
                 {"topk_group", 4},
                 {"first_k_dense_replace", 3}});
  const std::unique_ptr<Model> model = family_registry().create(config);
  EXPECT_EQ(trained_parameter_count(*model), 671'026'404'352);
  EXPECT_EQ(parameter_count(*model), 671'026'404'352 + 58 * 256);
}

TEST(Config, RefusesRoutingThatDeepseekDoesNotHave) {
  using testing::HasSubstr;
  const Json v2{{"model_type", "deepseek_v2"}, {"topk_method", "group_limited_greedy"}};
  const auto v2_error = [&](const Json& changes) {
    Json all = v2;
    all.update(changes);
    return deepseek_error(all);
  };
  EXPECT_EQ(deepseek_error(Json::object()), "no error");
  EXPECT_EQ(v2_error(Json::object()), "no error");
  EXPECT_THAT(v2_error({{"topk_method", "best"}}),
              HasSubstr("'topk_method' is \"best\", which deepseek_v2 does not have"));
  EXPECT_THAT(deepseek_error({{"topk_method", "greedy"}}),
              HasSubstr("'topk_method' is \"greedy\", which deepseek_v3 does not have"));
  EXPECT_THAT(v2_error({{"scoring_func", "sigmoid"}}), HasSubstr("'scoring_func' is \"sigmoid\""));
  EXPECT_THAT(deepseek_error({{"scoring_func", "softmax"}}), HasSubstr("'scoring_func' is \"softmax\""));
  EXPECT_THAT(v2_error({{"norm_topk_prob", true}}), HasSubstr("'norm_topk_prob': true"));
  for (const Json& family : {v2, Json::object()}) {
    const auto error = [&](const Json& changes) {
      Json all = family;
      all.update(changes);
      return deepseek_error(all);
    };
    EXPECT_THAT(error({{"n_group", 3}}), HasSubstr("'n_group' is 3, which does not divide the 8 experts"));
    EXPECT_THAT(error({{"topk_group", 5}}), HasSubstr("'topk_group' is 5, expected up to the 4 groups"));
    EXPECT_THAT(error({{"num_experts_per_tok", 5}}),
                HasSubstr("'num_experts_per_tok' is 5, expected up to the 4 experts of 2 groups"));
    EXPECT_THAT(error({{"n_routed_experts", 2000}}), HasSubstr("'n_routed_experts' is 2000, expected up to 1024"));
  }
  EXPECT_THAT(deepseek_error({{"n_group", 8}}), HasSubstr("a group has 1 of the 8 experts"));
}

TEST(Config, RefusesLatentAttentionThatCannotBeComputedWith) {
  using testing::HasSubstr;
  for (const char* key : {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                          "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size",
                          "n_group", "topk_group", "first_k_dense_replace", "intermediate_size"}) {
    EXPECT_THAT(deepseek_error(Json::object(), key), HasSubstr(text_of("'", key, "' is missing")));
  }
  EXPECT_EQ(deepseek_error({{"q_lora_rank", nullptr}}), "no error");
  EXPECT_EQ(deepseek_error({{"first_k_dense_replace", 0}}), "no error");
  EXPECT_THAT(deepseek_error({{"q_lora_rank", 0}}), HasSubstr("'q_lora_rank' is 0, expected a positive integer"));
  EXPECT_THAT(deepseek_error({{"first_k_dense_replace", -1}}), HasSubstr("'first_k_dense_replace' is -1"));
  EXPECT_THAT(deepseek_error({{"v_head_dim", 25}}), HasSubstr("'v_head_dim' is 25, expected up to the 24"));
  EXPECT_THAT(deepseek_error({{"qk_rope_head_dim", 7}, {"qk_nope_head_dim", 17}}),
              HasSubstr("expected an even number"));
  EXPECT_THAT(deepseek_error({{"qk_rope_head_dim", 6}}), HasSubstr("is 22, expected a multiple of 8"));
  EXPECT_THAT(deepseek_error({{"num_key_value_heads", 2}}), HasSubstr("'num_key_value_heads' is 2, expected the 4"));
  EXPECT_THAT(deepseek_error({{"moe_layer_freq", 2}}), HasSubstr("'moe_layer_freq' is 2, expected 1"));
  EXPECT_THAT(deepseek_error({{"attention_bias", true}}), HasSubstr("'attention_bias': true"));
  EXPECT_THAT(deepseek_error({{"output_router_logits", true}}), HasSubstr("'output_router_logits': true"));
  EXPECT_THAT(deepseek_error({{"rope_scaling", {{"type", "longrope"}}}}), HasSubstr("rope scaling 'longrope'"));
  EXPECT_THAT(deepseek_error({{"rope_scaling", {{"type", "yarn"}}}}), HasSubstr("'factor' is missing"));
}

}  // namespace
}  // namespace hone
