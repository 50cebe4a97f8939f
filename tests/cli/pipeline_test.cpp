// Tests pipelines: how stages are resolved, and that a killed pipeline resumes with the same bits.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "cli/pipeline/stages.h"
#include "cli/program.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/random.h"
#include "support/miniature.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

std::vector<Stage> stages_of(const std::string& yaml) {
  return resolve_stages(parse_yaml(yaml, "p.yaml"), {"base", "prompts.jsonl", "out"}, "p.yaml");
}

std::string refusal_of(const std::string& yaml) {
  try {
    (void)stages_of(yaml);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Stages, take_what_the_stage_before_left) {
  const auto stages = stages_of(
      "- {stage: sft, dataset_name: traces.jsonl, lr_scheduler_kwargs: {min_lr_rate: 0.1}}\n"
      "- {stage: grpo, reward_funcs: [accuracy, format]}\n"
      "- {stage: rejection_sampling, num_generations: 2}\n"
      "- {stage: sft, name: last, model_name_or_path: base}\n"
      "- {stage: curriculum}\n"
      "- {stage: grpo}\n"
      "- {stage: eval, task: gsm8k, model_name_or_path: '${last}'}\n");
  ASSERT_EQ(stages.size(), 7u);
  EXPECT_EQ(stages[0].recipe,
            "dataset_name: traces.jsonl\nlr_scheduler_kwargs: {min_lr_rate: \"0.1\"}\nmodel_name_or_path: base\n"
            "output_dir: out/01-sft\n");
  EXPECT_EQ(stages[1].recipe,
            "reward_funcs: [accuracy, format]\nmodel_name_or_path: out/01-sft\ndataset_name: prompts.jsonl\n"
            "output_dir: out/02-grpo\n");
  EXPECT_EQ(stages[2].recipe,
            "num_generations: \"2\"\nmodel_name_or_path: out/02-grpo\ndataset_name: prompts.jsonl\n"
            "reward_funcs: accuracy\noutput_form: conversations\noutput_dir: out/03-rejection_sampling\n");
  EXPECT_EQ(stages[3].recipe,
            "model_name_or_path: base\ndataset_name: out/03-rejection_sampling/data.jsonl\noutput_dir: out/04-last\n");
  EXPECT_EQ(stages[5].name, "grpo2");
  EXPECT_NE(stages[5].recipe.find("dataset_name: out/05-curriculum/data.jsonl\nshuffle_dataset: \"false\"\n"),
            std::string::npos)
      << stages[5].recipe;
  EXPECT_EQ(stages[6].recipe, "task: gsm8k\nmodel_name_or_path: out/04-last\noutput_dir: out/07-eval\n");
}

TEST(Stages, are_refused_with_their_line) {
  EXPECT_NE(refusal_of("- {stage: sft}\n- {stage: gpro}\n").find("p.yaml:2"), std::string::npos);
  EXPECT_NE(refusal_of("- {stage: gpro}\n").find("did you mean grpo?"), std::string::npos);
  EXPECT_NE(refusal_of("- {dataset_name: x}\n").find("the key `stage`"), std::string::npos);
  EXPECT_NE(refusal_of("{stage: sft}\n").find("must be a list"), std::string::npos);
  EXPECT_NE(refusal_of("- {stage: sft, output-dir: x}\n").find("output_dir"), std::string::npos);
  const std::string secret = refusal_of("- {stage: sft, hub-token: hf_mostSecret}\n");
  EXPECT_NE(secret.find("sets hub_token, which would be written to its recipe (set HF_TOKEN in the environment)"),
            std::string::npos);
  EXPECT_EQ(secret.find("hf_mostSecret"), std::string::npos);
  EXPECT_NE(refusal_of("- {stage: sft, name: ../x}\n").find("letters"), std::string::npos);
  EXPECT_NE(refusal_of("- {stage: sft, name: a}\n- {stage: sft, name: a}\n").find("two stages"), std::string::npos);
  EXPECT_NE(refusal_of("- {stage: sft, dataset_name: '${grpo}'}\n").find("no earlier stage"), std::string::npos);
}

class PipelineRun : public testing::Test {
 protected:
  void SetUp() override {
    write_miniature(folder_.path());
    const Ended base = run_program(pretrain_arguments(
        folder_.path(), {"--per_device_train_batch_size", "4", "--max_steps", "40", "--learning_rate", "3e-3",
                         "--save_strategy", "no", "--output_dir", path("base")}));
    ASSERT_EQ(base.code, 0) << base.output;
    write_recipe("1e-3");
  }

  [[nodiscard]] std::string path(const std::string& relative) const { return (folder_.path() / relative).string(); }

  void write_recipe(const std::string& learning_rate) const {
    const std::string training = "per_device_train_batch_size: 4, logging_steps: 1, save_steps: 1, learning_rate: ";
    write_file(folder_.path() / "pipeline.yaml",
               "model_name_or_path: " + path("base") + "\ndataset_name: " + path("data/prompts.jsonl") + "\nstages:\n" +
                   "  - {stage: sft, dataset_name: " + path("data/sft.jsonl") + ", max_steps: 6, " + training +
                   learning_rate + "}\n" +
                   "  - {stage: grpo, dataset_prompt_column: problem, num_generations: 4, max_steps: 4, "
                   "max_completion_length: 12, reward_funcs: [tag_count, length], " +
                   training + "1e-3}\n" +
                   "  - {stage: rejection_sampling, dataset_prompt_column: problem, num_generations: 3, "
                   "max_new_tokens: 24, temperature: 1, max_num_seqs: 8, require_end: false, reward_funcs: "
                   "[soft_overlong_punishment], min_reward: 0}\n" +
                   "  - {stage: sft, name: last, max_steps: 5, " + training + "1e-3}\n");
  }

  [[nodiscard]] std::vector<std::string> arguments(const std::string& output,
                                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"pipeline", "--config", path("pipeline.yaml"), "--output_dir", path(output)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // Returns the number of stages that have begun; 0 if there is no state yet.
  [[nodiscard]] std::size_t begun(const std::string& output) const {
    const fs::path state = folder_.path() / output / "pipeline.json";
    return is_file(state) ? read_json(state)["stages"].size() : 0;
  }

  TemporaryDirectory folder_;
};

TEST_F(PipelineRun, KilledInEachStageItLeavesTheSameBits) {
  const auto begin = std::chrono::steady_clock::now();
  const Ended whole = run_program(arguments("whole"));
  ASSERT_EQ(whole.code, 0) << whole.output;
  const auto whole_time = std::chrono::steady_clock::now() - begin;
  auto most =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(whole_time).count() / 10);
  const RandomStream random(1, "kill");
  std::uint64_t tries = 0;
  for (std::size_t stage = 1; stage <= 4; ++stage) {
    for (int kills = 0; kills < 2;) {
      copy_folder(path("killed"), path("so far"));
      const pid_t child = start_program(arguments("killed"), folder_.path() / "log");
      while (begun("killed") < stage && is_running(child)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(++tries, most)));
      ::kill(child, SIGKILL);
      const int code = wait_for(child);
      if (code == 128 + SIGKILL && begun("killed") == stage) {
        ++kills;
      } else {  // the stage had ended before the kill: try again with an earlier kill
        ASSERT_TRUE(code == 0 || code == 128 + SIGKILL) << read_file(folder_.path() / "log");
        copy_folder(path("so far"), path("killed"));
        most = std::max<std::uint64_t>(most * 3 / 4, 1);
      }
    }
  }
  const Ended rest = run_program(arguments("killed"));
  ASSERT_EQ(rest.code, 0) << rest.output;
  for (const char* file : {"01-sft/model.safetensors", "02-grpo/model.safetensors", "03-rejection_sampling/data.jsonl",
                           "04-last/model.safetensors"}) {
    const std::string relative = std::string("/") + file;
    EXPECT_EQ(read_file(path("killed" + relative)), read_file(path("whole" + relative))) << file;
  }
  EXPECT_EQ(begun("killed"), 4u);
  // Every prompt was completed exactly once.
  const std::string generations = read_file(path("killed/03-rejection_sampling/generations.jsonl"));
  EXPECT_EQ(std::ranges::count(generations, '\n'), 40);
  const Ended again = run_program(arguments("killed"));
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.output.find("stage 4 of 4, last: already done"), std::string::npos) << again.output;

  // Changed keys of a stage that has begun are refused; --from runs the stage again.
  write_recipe("2e-3");
  const Ended refused = run_program(arguments("killed"));
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.output.find("was `learning_rate: \"1e-3\"`, is `learning_rate: \"2e-3\"`"), std::string::npos)
      << refused.output;
  const Ended anew = run_program(arguments("killed", {"--from", "sft"}));
  EXPECT_EQ(anew.code, 0) << anew.output;
  EXPECT_NE(read_file(path("killed/04-last/model.safetensors")), read_file(path("whole/04-last/model.safetensors")));
}

TEST_F(PipelineRun, ConvertKeepsValues) {
  const Ended sharded =
      run_program({"convert", path("base"), "--max_shard_size", "20KB", "--output_dir", path("small")});
  ASSERT_EQ(sharded.code, 0) << sharded.output;
  EXPECT_TRUE(is_file(folder_.path() / "small" / "model.safetensors.index.json"));
  EXPECT_TRUE(is_file(folder_.path() / "small" / "tokenizer.json"));
  ASSERT_EQ(run_program({"convert", path("small"), "--output_dir", path("one")}).code, 0);
  EXPECT_EQ(read_file(path("one/model.safetensors")), read_file(path("base/model.safetensors")));
  ASSERT_EQ(run_program({"convert", path("base"), "--dtype", "bfloat16", "--output_dir", path("half")}).code, 0);
  EXPECT_EQ(read_json(path("half/config.json"))["torch_dtype"], "bfloat16");
  EXPECT_LT(fs::file_size(path("half/model.safetensors")), fs::file_size(path("base/model.safetensors")) * 6 / 10);
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& message) {
    const Ended ended = run_program(arguments);
    EXPECT_EQ(ended.code, 1);
    EXPECT_NE(ended.output.find(message), std::string::npos) << ended.output;
  };
  refused({"convert", path("base")}, "output_dir");
  refused({"convert", path("base"), "--output_dir", path("base")}, "the folder of the model itself");
  refused({"convert", path("base"), "--output_dir", path("x"), "--max_shard_size", "5 stones"}, "expected a size");
}

}  // namespace
}  // namespace hone::test
