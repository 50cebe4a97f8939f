// Tests that errors in an adapter's folder or in the LoRA keys end with exit code 1 and one line. The lines are frozen
// in a fixture, like those of bad_input_test.cpp.
#include <gtest/gtest.h>

#include <functional>

#include "cli/command_line.h"
#include "cli/program.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/golden.h"
#include "support/miniature.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

using Arguments = std::vector<std::string>;

// A miniature with an adapter that was trained for one step, and broken copies of the adapter.
class BadAdapter : public testing::Test {
 protected:
  void SetUp() override {
    write_miniature(folder_.path());
    ASSERT_EQ(run_commands(pretrain_arguments(folder_.path(), {"--max_steps", "1", "--per_device_train_batch_size", "2",
                                                               "--output_dir", at("model")}))
                  .code,
              0);
    ASSERT_EQ(run_commands(sft({"--lora_target_modules", "q_proj,v_proj"}, "adapter")).code, 0);
  }

  [[nodiscard]] std::string at(const std::string& relative) const { return (folder_.path() / relative).string(); }
  [[nodiscard]] Arguments sft(const Arguments& more, const std::string& output = "out") const {
    Arguments all{"sft",
                  "--model_name_or_path",
                  at("model"),
                  "--dataset_name",
                  at("data/sft.jsonl"),
                  "--max_steps",
                  "1",
                  "--max_length",
                  "128",
                  "--use_peft",
                  "--lora_r",
                  "2",
                  "--output_dir",
                  at(output)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  void expect_error(const std::string& what, const Arguments& arguments) {
    const CommandResult ended = run_commands(arguments);
    std::vector<std::string> errors;
    for (const std::string& line : split(ended.said, '\n')) {
      if (line.starts_with("hone: error: ") || line.find("defect") != std::string::npos) errors.push_back(line);
    }
    EXPECT_EQ(ended.code, 1) << what << "\n" << ended.said;
    ASSERT_EQ(errors.size(), 1u) << what << "\n" << ended.said;
    EXPECT_LT(errors[0].size(), 600u) << what;
    std::string line = errors[0];
    for (std::size_t found = line.find(at("")); found != std::string::npos; found = line.find(at(""))) {
      line.replace(found, at("").size(), "DIR/");
    }
    table_ += what + "\n  " + line + "\n";
  }
  // Runs `hone merge` on a copy of the adapter whose configuration has this value for a key.
  void expect_key_error(const std::string& what, const std::string& key, const std::string& value) {
    expect_config_error(what, [&](Json& config) { config[key] = parse_json(value, "test"); });
  }
  void expect_config_error(const std::string& what, const std::function<void(Json&)>& change) {
    fs::remove_all(at("broken"));
    fs::copy(at("adapter"), at("broken"));
    Json config = read_json(at("broken/adapter_config.json"));
    change(config);
    write_json(at("broken/adapter_config.json"), config);
    expect_error(what, {"merge", at("broken"), "--output_dir", at("merged")});
  }

  TemporaryDirectory folder_;
  std::string table_;
};

TEST_F(BadAdapter, IsNamed) {
  expect_error("a module that is not there", sft({"--lora_target_modules", "q_proj,q_porj"}));
  expect_error("a pattern that fits nothing", sft({"--lora_target_modules", R"(layers\.\d+\.q_proj)"}));
  expect_error("a pattern that fits too much", sft({"--lora_target_modules", ".*"}));
  expect_error("a pattern that does not end", sft({"--lora_target_modules", ".*(q|v_proj"}));
  expect_error("a pattern that looks back", sft({"--lora_target_modules", "(?<!k)_proj"}));
  expect_error("a pattern of many steps", sft({"--lora_target_modules", "(((.{900}){900}){900})*"}));
  expect_error("parameters", sft({"--lora_target_parameters", "experts.gate_up_proj"}));
  expect_error("a head saved and adapted",
               sft({"--lora_target_modules", "lm_head", "--lora_modules_to_save", "lm_head"}));
  expect_error("a head with magnitudes", sft({"--lora_target_modules", "lm_head", "--use_dora"}));

  expect_key_error("another kind", "peft_type", "\"IA3\"");
  expect_key_error("no rank", "r", "0");
  expect_key_error("another rank", "r", "4");
  expect_key_error("another rank by pattern", "rank_pattern", R"({"layers.1.*q_proj": 3})");
  expect_key_error("a rank that is text", "rank_pattern", R"({"q_proj": "3"})");
  expect_key_error("ranks that are none", "alpha_pattern", "[1]");
  expect_key_error("a scale of a pattern that is none", "alpha_pattern", R"-({"q_proj)": 3})-");
  expect_key_error("other modules", "target_modules", R"(["q_proj"])");
  expect_key_error("other modules by pattern", "target_modules", R"(".*\\.0\\..*")");
  expect_key_error("a pattern that is none", "target_modules", R"("*q_proj")");
  expect_key_error("modules that are a number", "target_modules", "3");
  expect_key_error("excluded modules", "exclude_modules", R"("model.*v_proj")");
  expect_key_error("other layers", "layers_to_transform", "[1]");
  expect_key_error("layers that are text", "layers_to_transform", R"(["1"])");
  expect_key_error("magnitudes that are not there", "use_dora", "true");
  expect_key_error("a switch that is text", "use_rslora", "\"yes\"");
  expect_key_error("biases of another kind", "bias", "\"some\"");
  expect_key_error("a changed base", "init_lora_weights", "\"pissa\"");
  expect_key_error("a quantized base", "init_lora_weights", "\"loftq\"");
  expect_key_error("more layers", "layer_replication", "[[0, 4], [2, 5]]");
  expect_key_error("parameters of an adapter", "target_parameters", R"(["experts.gate_up_proj"])");
  expect_key_error("tokens of an adapter", "trainable_token_indices", "[1, 2]");
  expect_key_error("an activated adapter", "alora_invocation_tokens", "[1, 2]");
  expect_key_error("biases of B", "lora_bias", "true");
  expect_golden("cli/bad_input_adapters.txt", table_);
}

}  // namespace
}  // namespace hone::test
