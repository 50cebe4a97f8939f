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
  EXPECT_THAT(mixture_error({{"output_router_logits", true}}), HasSubstr("'output_router_logits': true"));
  EXPECT_THAT(mixture_error({{"router_jitter_noise", 0.1}}), HasSubstr("'router_jitter_noise' is 0.1, expected 0"));
  EXPECT_THAT(mixture_error({{"model_type", "mixtral"}, {"sliding_window", 4096}}),
              HasSubstr("'sliding_window' is 4096, expected null"));
}

}  // namespace
}  // namespace hone
