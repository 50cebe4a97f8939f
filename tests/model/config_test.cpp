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

}  // namespace
}  // namespace hone
