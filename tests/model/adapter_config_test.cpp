// Tests of reading adapter_config.json: ranks, scales, target modules and rejected values.
#include "model/adapter_config.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json_value.h"

namespace hone::test {
namespace {

AdapterConfig config_with(const std::string& text) { return {parse_json(text, "test"), "FILE"}; }

std::string error_of_config(const std::string& text) {
  try {
    (void)config_with(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(AdapterConfig, RanksAndScalesAreByPattern) {
  const AdapterConfig config = config_with(R"({"r": 4, "lora_alpha": 6,
      "rank_pattern": {"q_proj": 8, ".*q_proj": 2, "^model.layers.1.mlp.up_proj": 3},
      "alpha_pattern": {"layers.[0-1].self_attn.*": 10}})");
  EXPECT_EQ(config.rank("model.layers.0.self_attn.q_proj"), 8);  // the first matching pattern
  EXPECT_EQ(config.rank("model.layers.1.mlp.up_proj"), 3);
  EXPECT_EQ(config.rank("model.layers.11.mlp.up_proj"), 4);
  EXPECT_EQ(config.rank("my_q_proj"), 2);  // "q_proj" must match a whole component of the name
  EXPECT_DOUBLE_EQ(config.scale("model.layers.0.self_attn.q_proj"), 10.0 / 8);
  EXPECT_DOUBLE_EQ(config.scale("model.layers.2.self_attn.q_proj"), 6.0 / 8);
  EXPECT_DOUBLE_EQ(config_with(R"({"r": 4, "use_rslora": true})").scale("x"), 4.0);
}

TEST(AdapterConfig, TargetsAreAsPeftChoosesThem) {
  const AdapterConfig some = config_with(R"({"target_modules": ["q_proj", "model.layers.5.mlp.up_proj"],
      "exclude_modules": ["2.self_attn.q_proj"], "layers_to_transform": [0, 2]})");
  EXPECT_TRUE(some.targets("model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(some.targets("model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(some.targets("model.layers.2.self_attn.q_proj"));
  EXPECT_TRUE(some.targets("model.layers.5.mlp.up_proj"));  // a full name selects the module in any layer
  EXPECT_FALSE(some.targets("model.layers.0.self_attn.k_proj"));
  EXPECT_FALSE(some.targets("model.q_proj"));  // not inside a layer
  const AdapterConfig pattern = config_with(R"({"target_modules": ["c_attn"], "layers_to_transform": 3,
      "layers_pattern": ["blocks", "h"]})");
  EXPECT_TRUE(pattern.targets("transformer.h.3.attn.c_attn"));
  EXPECT_FALSE(pattern.targets("transformer.h.30.attn.c_attn"));
  EXPECT_FALSE(pattern.targets("transformer.x.3.attn.c_attn"));
  EXPECT_FALSE(config_with(R"({"target_modules": ".*q_proj"})").targets("model.layers.0.self_attn.k_proj"));
  EXPECT_TRUE(config_with(R"({"target_modules": "all-linear"})").targets("any"));
}

TEST(AdapterConfig, RefusesInOneLine) {
  const auto expect = [](const char* text, const char* error) { EXPECT_EQ(error_of_config(text), error) << text; };
  expect(R"({"peft_type": "IA3"})", "FILE: peft_type 'IA3' is not known (LORA)");
  expect(R"({"r": 0})", "FILE: 'r' is 0, expected a positive integer up to 1000000000");
  expect(R"({"use_dora": "yes"})", "FILE: 'use_dora' is \"yes\", expected true or false");
  expect(R"({"bias": "some"})", "FILE: bias: 'some' is not known (none, all or lora_only)");
  expect(R"({"rank_pattern": {"q": "8"}})", "FILE: rank_pattern: 'q' is \"8\", expected a number");
  expect(R"({"rank_pattern": {"q": 1.5}})", "FILE: rank_pattern: a rank is 1.5 (a positive integer)");
  expect(R"({"rank_pattern": [8]})", "FILE: rank_pattern: is [8], expected an object of numbers");
  expect(R"({"alpha_pattern": {"(q": 8}})",
         "FILE: alpha_pattern: '(.*\\.)?((q)' is no regular expression that hone reads: missing closing parenthesis at "
         "character 11");
  expect(R"({"target_modules": 3})", "FILE: target_modules: is 3, expected a list of names or a regular expression");
  expect(R"({"target_modules": "(?x)_proj"})",
         "FILE: target_modules: '(?x)_proj' is no regular expression that hone reads: an unknown group at character 1");
  expect(R"({"exclude_modules": ["a", 1]})",
         "FILE: exclude_modules: is [\"a\",1], expected a list of names or a regular expression");
  expect(R"({"layers_to_transform": "0"})", "FILE: layers_to_transform: is \"0\", expected a list of layers' numbers");
  expect(R"({"layers_to_transform": [0], "target_modules": ".*"})",
         "FILE: layers_to_transform: is [0], but target_modules is not a list (name the layers in target_modules)");
  expect(
      R"({"init_lora_weights": "pissa_niter_4"})",
      "FILE: init_lora_weights: 'pissa_niter_4' changed the base's weights before training, so that the adapter fits "
      "others (save it with PEFT's path_initial_model_for_weight_conversion, or merge it with PEFT)");
  expect(R"({"target_parameters": ["mlp.experts.gate_up_proj"]})",
         "FILE: target_parameters: [\"mlp.experts.gate_up_proj\"]: adapters on parameters are not known to hone, on "
         "modules alone (merge it with PEFT: merge_and_unload)");
  for (const char* key : {"alora_invocation_tokens", "arrow_config", "kasa_config", "layer_replication", "lora_bias",
                          "megatron_config", "monteclora_config", "use_bdlora", "use_qalora"}) {
    EXPECT_NE(error_of_config(std::string("{\"") + key + "\": [1]}").find(std::string("FILE: ") + key),
              std::string::npos);
    EXPECT_EQ(error_of_config(std::string("{\"") + key + "\": null}"), "no error") << key;
  }
  for (const char* kind : {"true", "false", "\"gaussian\"", "\"eva\"", "\"orthogonal\"", "\"mica\"", "null"}) {
    EXPECT_EQ(error_of_config(std::string("{\"init_lora_weights\": ") + kind + "}"), "no error") << kind;
  }
}

TEST(AdapterConfig, KeysThatNobodyKnowsAreSaid) {
  testing::internal::CaptureStderr();
  (void)config_with(R"({"new_kind": 3, "newer_kind": null, "lora_dropout": 0.1})");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("FILE: new_kind is not known to hone and has no effect"), std::string::npos) << said;
  EXPECT_EQ(said.find("newer_kind"), std::string::npos);
  EXPECT_EQ(said.find("lora_dropout"), std::string::npos);
}

}  // namespace
}  // namespace hone::test
