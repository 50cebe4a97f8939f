// Tests of GRPO in tensor groups: losses, rewards and completions next to those of one process, on CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/program.h"
#include "core/files.h"
#include "job/job_fixture.h"
#include "support/models.h"

namespace hone::test {
namespace {

using ::testing::HasSubstr;

// Metrics that do not depend on the layout.
const Flags kReinforced{"loss",
                        "grad_norm",
                        "reward",
                        "reward_std",
                        "frac_reward_zero_std",
                        "entropy",
                        "completions/mean_length",
                        "completions/clipped_ratio",
                        "num_tokens",
                        "epoch"};

class TensorGrpo : public JobFixture {
 protected:
  TensorGrpo() {
    const Configs families{{"llama", SmallModel{.type = "llama"}.config()},
                           {"llama odd", SmallModel{.type = "llama", .vocabulary = 309}.config()},
                           {"qwen2", SmallModel{.type = "qwen2"}.config()},
                           {"qwen3", SmallModel{.type = "qwen3", .tied = true}.config()},
                           {"gpt2", SmallModel{.type = "gpt2"}.config()}};
    for (const auto& [name, config] : families) write_file(path(name + ".json"), config);
  }

  // Makes a model that has learned a little.
  void make_model(const std::string& family) const {
    finish(
        pretraining(family, 12, 12, joined(batches(4, 1), {"--model_config_path", path(family + ".json").string()})));
  }
  // GRPO on 4 prompts x 4 completions a step. data: tensor groups, each of `size` processes.
  [[nodiscard]] Flags arguments(const std::string& model, const std::string& output, int data, int size,
                                const Flags& more = {}) const {
    const Flags run = joined(
        batches(4 / data, data * size),
        {"--per_device_train_batch_size", "4", "--max_completion_length", "24", "--max_steps", "6", "--save_steps", "2",
         "--logging_steps", "1", "--learning_rate", "1e-3", "--tensor_parallel_size", std::to_string(size)});
    return reinforcement(model, output, joined(run, more));
  }
  void run(const std::string& model, const std::string& output, int data, int size, const Flags& more = {}) const {
    finish(arguments(model, output, data, size, more));
  }
  [[nodiscard]] std::string completions(const std::string& output, int step) const {
    return read_file(path(output) / ("completions/step-" + std::to_string(step) + ".jsonl"));
  }
  void expect_exact(const std::string& output, std::size_t steps) const {
    const std::vector<double> differences = series(output, "sampling/sampling_logp_difference/max");
    EXPECT_EQ(differences, std::vector<double>(steps, 0.0)) << output;
  }
};

TEST_F(TensorGrpo, AGroupHasTheNumbersOfOneProcess) {
  for (const char* family : {"llama", "llama odd", "qwen2", "gpt2"}) {
    const std::string name = family;
    make_model(name);
    run(name, name + " one", 1, 1);
    for (const auto& [data, size] : {std::pair{1, 2}, {1, 4}, {2, 2}}) {
      const std::string output = name + " " + std::to_string(data) + " x " + std::to_string(size);
      run(name, output, data, size);
      expect_near(output, name + " one", kReinforced);
      expect_exact(output, 6);
      EXPECT_EQ(completions(output, 1), completions(name + " one", 1)) << output;
      EXPECT_EQ(completions(output, 6), completions(name + " one", 6)) << output;
      expect_near_weights(output, name + " one", 1e-3);
    }
  }
}

}  // namespace
}  // namespace hone::test
