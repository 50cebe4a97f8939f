// Tests hone plan for a recipe, for keys without a recipe, and for another device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/measured_rates.h"
#include "cli/command_line.h"
#include "cli/training_kind.h"
#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"
#include "support/environment.h"
#include "support/miniature.h"
#include "support/paths.h"

namespace hone::test {
namespace {
using testing::HasSubstr;
using testing::Not;

class PlanCommand : public testing::Test {
 protected:
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    write_file(folder_.path() / name, text);
    return (folder_.path() / name).string();
  }
  TemporaryDirectory folder_;
};

// Returns the line of a plan that begins with two spaces and `name`.
std::string line_of(const std::string& plan, const std::string& name) {
  for (const std::string& line : split(plan, '\n')) {
    if (line.starts_with("  " + name + " ")) return line;
  }
  return "no line " + name;
}

TEST_F(PlanCommand, NeedsAModelAndItsKeysOnly) {
  const CommandResult sft = run_commands({"plan", "sft", "--model_name_or_path", "Qwen/Qwen2.5-0.5B", "--max_length",
                                          "256", "--per_device_train_batch_size", "2", "--device", "cpu"});
  ASSERT_EQ(sft.code, 0) << sft.said;
  EXPECT_THAT(sft.said, HasSubstr("the shape of qwen2.5-0.5b"));
  EXPECT_THAT(sft.printed, HasSubstr("work of a micro-batch of 512 tokens"));
  EXPECT_THAT(sft.printed, HasSubstr("steps: depends on the data"));
  EXPECT_THAT(line_of(sft.printed, "total"), HasSubstr("494,032,768"));
  const CommandResult grpo =
      run_commands({"plan", "grpo", "--model_name_or_path", "qwen2.5-0.5b", "--max_completion_length", "64",
                    "--max_prompt_length", "64", "--max_steps", "7", "--device", "cpu"});
  ASSERT_EQ(grpo.code, 0) << grpo.said;
  EXPECT_THAT(grpo.printed, HasSubstr("work of a micro-batch of 1,024 tokens"));
  EXPECT_THAT(grpo.printed, HasSubstr("steps 7\n"));
  const std::string config = write("config.json", R"({"model_type": "qwen2", "vocab_size": 512, "hidden_size": 64,
      "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "max_position_embeddings": 256})");
  const CommandResult pretrain =
      run_commands({"plan", "pretrain", "--model_config_path", config, "--block_size", "64", "--device", "cpu"});
  ASSERT_EQ(pretrain.code, 0) << pretrain.said;
  EXPECT_THAT(pretrain.printed, HasSubstr("work of a micro-batch of 512 tokens"));
}

// A plan says of keys what the run says.
TEST_F(PlanCommand, RefusesWhatTheRunRefuses) {
  const auto refused = [](const std::string& kind, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"plan", kind, "--model_name_or_path", "qwen2.5-0.5b", "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run_commands(arguments);
    EXPECT_EQ(result.code, 1) << result.printed;
    return result.said;
  };
  EXPECT_THAT(refused("sft", {"--num_processes", "3", "--tensor_parallel_size", "3"}),
              HasSubstr("tensor_parallel_size: is 3, but num_attention_heads is 14"));
  EXPECT_THAT(refused("sft", {"--num_processes", "2", "--expert_parallel_size", "2"}),
              HasSubstr("expert_parallel_size: is 2, but the model has no mixture of experts"));
  EXPECT_THAT(refused("sft", {"--num_processes", "30", "--pipeline_parallel_size", "30"}),
              HasSubstr("pipeline_parallel_size: is 30, but the model has 24 layers"));
  EXPECT_THAT(refused("sft", {"--num_processes", "2", "--context_parallel_size", "4"}),
              HasSubstr("context_parallel_size: is 4, which does not divide num_processes 2"));
  const std::vector<std::string> grpo{"--num_processes", "2", "--max_completion_length", "64"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), grpo.begin(), grpo.end());
    return more;
  };
  EXPECT_THAT(refused("grpo", with({"--pipeline_parallel_size", "2"})),
              HasSubstr("pipeline_parallel_size: is 2; hone grpo divides weights by tensor_parallel_size only"));
}

// The plan shows a time only for this machine's device, and only if its rates are known.
TEST_F(PlanCommand, SaysTheTimeAtMeasuredLimits) {
  const Environment environment({{"HONE_CACHE", (folder_.path() / "cache").string()}});
  const std::vector<std::string> run{"plan",
                                     "sft",
                                     "--model_name_or_path",
                                     "qwen2.5-0.5b",
                                     "--max_length",
                                     "256",
                                     "--per_device_train_batch_size",
                                     "2",
                                     "--device",
                                     "cpu",
                                     "--torch_dtype",
                                     "bfloat16"};
  const std::string unknown = run_commands(run).printed;
  EXPECT_THAT(unknown, Not(HasSubstr("at the device's limits")));
  DeviceModel measured;
  measured.bf16_flops = {1e6, RateSource::kMeasured};
  measured.copy_bytes = {1e15, RateSource::kMeasured};
  store_measured(cpu_device(), measured);
  const std::string known = run_commands(run).printed;
  const std::string line = line_of(known, "at the device's limits");
  EXPECT_THAT(line, HasSubstr(" ms, by measured rates"));
  // One GFLOP at the stored rate of 1 MFLOP/s takes 1,000 s, which is 1e6 ms.
  const auto number = [](const std::string& text) { return std::stod(text.substr(30)); };
  EXPECT_NEAR(number(line), number(line_of(known, "forward and backward")) * 1e6, 1e3);
  const std::size_t at = known.find("  at the device's limits");
  const std::string without = std::string(known).erase(at, known.find('\n', at) + 1 - at);
  EXPECT_EQ(without.substr(0, without.find("cpu: ")), unknown.substr(0, unknown.find("cpu: ")));
  std::vector<std::string> elsewhere = run;
  elsewhere.insert(elsewhere.end(), {"--device_memory", "80GiB"});
  EXPECT_THAT(run_commands(elsewhere).printed, Not(HasSubstr("at the device's limits")));
}

// Several processes without a key that divides the model are given a ranking.
TEST_F(PlanCommand, RanksLayouts) {
  const std::vector<std::string> run{"plan",
                                     "pretrain",
                                     "--model_name_or_path",
                                     "qwen2.5-0.5b",
                                     "--torch_dtype",
                                     "bfloat16",
                                     "--optim",
                                     "adamw_bf16",
                                     "--block_size",
                                     "1024",
                                     "--device_name",
                                     "H200",
                                     "--num_processes",
                                     "2",
                                     "--per_device_train_batch_size",
                                     "4"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = run;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_commands(arguments);
  };
  const CommandResult ranking = with({});
  ASSERT_EQ(ranking.code, 0) << ranking.said;
  EXPECT_THAT(ranking.printed, HasSubstr("layouts of 2 processes on H200 (138.79 GiB available each), 8 sequences of "
                                         "1,024 tokens a step: "));
  EXPECT_THAT(ranking.printed, testing::ContainsRegex("  1  [a-z_0-9 ,]+ x [0-9]+ +[0-9.]+ GiB +[0-9]+ ms +[0-9]+ +"
                                                      "[0-9.]+%  GEMMs [0-9]+%, "));
  EXPECT_THAT(ranking.printed, HasSubstr("\n 10  "));
  EXPECT_THAT(ranking.printed, Not(HasSubstr("\n 11  ")));
  EXPECT_THAT(ranking.printed,
              testing::ContainsRegex("\nthe first: --.*per_device_train_batch_size [0-9]+ "
                                     "--gradient_accumulation_steps [0-9]+ --gradient_checkpointing false\n"));
  EXPECT_THAT(with({"--plan_all"}).printed, HasSubstr("\n 11  "));
  const std::string given = with({"--zero_stage", "1"}).printed;
  EXPECT_THAT(given, HasSubstr("work of a micro-batch")) << "a layout is given";
  EXPECT_THAT(given, testing::ContainsRegex("\na step on H200: [0-9]+ ms, [0-9]+ tokens/s a device, MFU [0-9.]+%: "
                                            "GEMMs [0-9]+%, "));
  EXPECT_THAT(with({"--device_name", "A100", "--device_memory", "80GiB"}).printed,
              HasSubstr("layouts of 2 processes on A100 (79.00 GiB available each)"));
  const CommandResult unit = with({"--plan_ngpus", "1", "--plan_all"});
  EXPECT_THAT(unit.printed, HasSubstr("zero_stage 3"));
  EXPECT_THAT(unit.printed, Not(HasSubstr("tensor"))) << "a unit of one GPU divides no layer";
  const auto refused = [&](const std::vector<std::string>& more) {
    const CommandResult result = with(more);
    EXPECT_EQ(result.code, 1) << result.printed;
    return result.said;
  };
  EXPECT_THAT(refused({"--device_name", "TPU"}),
              HasSubstr("--device_name: hone does not know the memory of 'TPU' (name H200 or H100, or set"));
  EXPECT_THAT(refused({"--plan_ngpus", "4"}), HasSubstr("--plan_ngpus: is 4, which does not divide the 2 GPUs"));
  EXPECT_THAT(refused({"--runtime_ngpus", "4"}), HasSubstr("--runtime_ngpus: is 4, but num_processes is 2"));
  for (const char* key : {"--plan_ngpus", "--plan_all"}) {
    EXPECT_THAT(refused({"--zero_stage", "1", key, std::string_view(key) == "--plan_all" ? "true" : "1"}),
                HasSubstr(std::string(key) + ": is for ranking the layouts of pretrain or sft"));
  }
  write_file(folder_.path() / "launch.yaml", "num_processes: 8\n");
  std::vector<std::string> alone(run.begin(), run.end());
  std::erase(alone, "--num_processes");
  std::erase(alone, "2");
  std::vector<std::string> gpus = alone;
  gpus.insert(gpus.end(), {"--runtime_ngpus", "2"});
  EXPECT_EQ(run_commands(gpus).printed, ranking.printed);
  std::vector<std::string> file = alone;
  file.insert(file.end(), {"--config_file", (folder_.path() / "launch.yaml").string(), "--runtime_ngpus", "16"});
  EXPECT_THAT(run_commands(file).said, HasSubstr("--runtime_ngpus: is 16, but num_processes is 8"));
  EXPECT_THAT(refused({"--torch_dtype", "float32"}),
              HasSubstr("optim: adamw_bf16 is for weights of bfloat16, these are f32"))
      << "as a run says it";
  EXPECT_THAT(refused({"--device_memory", "2GiB"}), HasSubstr("layout: none of the "));
}

TEST_F(PlanCommand, AnswersForOtherDevices) {
  const std::vector<std::string> run{
      "plan",     "sft", "--model_name_or_path",          "qwen2.5-7b", "--max_length", "1024",
      "--device", "cpu", "--per_device_train_batch_size", "4"};
  const auto asked = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = run;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_commands(arguments);
  };
  const CommandResult table = asked({"--optim", "adamw_8bit", "--gradient_dtype", "bfloat16"});
  ASSERT_EQ(table.code, 0) << table.said;
  EXPECT_THAT(table.printed, testing::ContainsRegex("24 GiB  takes +[0-9.]+ GiB  does not fit even with "));
  EXPECT_THAT(table.printed, testing::ContainsRegex("80 GiB  takes +[0-9.]+ GiB  fits\n"));
  EXPECT_THAT(table.printed, testing::ContainsRegex("141 GiB  takes +[0-9.]+ GiB  fits\n"));
  const CommandResult large = asked({"--device_memory", "80GiB"});
  ASSERT_EQ(large.code, 0) << large.said;
  EXPECT_THAT(large.printed, HasSubstr("a GPU of 80.00 GiB: available 79.00 GiB of 80.00 GiB: "));
  EXPECT_THAT(large.printed, HasSubstr("GiB too much\nit fits with "));
  EXPECT_THAT(large.printed, testing::ContainsRegex("80 GiB  takes +[0-9.]+ GiB  fits with gradient_dtype: bfloat16"));
  EXPECT_THAT(asked({"--device_memory", "200GiB"}).printed, HasSubstr("of 200.00 GiB: it fits"));
  for (const char* bad : {"80", "lots", "-1GiB", "1GiB"}) {
    const CommandResult refused = asked({"--device_memory", bad});
    EXPECT_EQ(refused.code, 1) << bad;
    EXPECT_THAT(refused.said, HasSubstr("--device_memory: expected a size above 1GiB, saw '" + std::string(bad)));
  }
}

// gradient_checkpointing: auto recomputes as much as the memory of the planned device requires.
TEST_F(PlanCommand, RecomputesForTheDeviceThatIsAskedAbout) {
  const auto arena = [&](const char* memory) {
    return line_of(run_commands({"plan", "sft", "--model_name_or_path", "qwen2.5-0.5b", "--max_length", "2048",
                                 "--device_memory", memory})
                       .printed,
                   "step arena");
  };
  EXPECT_NE(arena("14GiB"), arena("141GiB"));
}

TEST_F(PlanCommand, TakesARecipeWithAndWithoutItsKind) {
  const std::string model = "model_name_or_path: qwen2.5-0.5b\nmax_steps: 3\ndevice_memory: 100GiB\n";
  const std::string sft = write("a.yaml", model + "max_length: 128\npacking: true\n");
  const std::string grpo = write("b.yaml", model + "num_generations: 4\nmax_completion_length: 32\n");
  const std::string named = run_commands({"plan", "sft", sft}).printed;
  EXPECT_THAT(named, HasSubstr("work of a micro-batch of 1,024 tokens"));
  EXPECT_EQ(run_commands({"plan", sft}).printed, named);
  EXPECT_EQ(run_commands({"plan", "--config", sft}).printed, named);
  EXPECT_EQ(run_commands({"plan", "sft", "--config=" + sft}).printed, named);
  EXPECT_THAT(run_commands({"plan", sft, "--max_length", "64"}).printed, HasSubstr("of 512 tokens"));
  EXPECT_THAT(run_commands({"plan", grpo}).printed, HasSubstr("KV cache"));
}

TEST_F(PlanCommand, LosesNoArgument) {
  const std::string sft = write("a.yaml", "model_name_or_path: qwen2.5-0.5b\nmax_length: 128\n");
  EXPECT_THAT(run_commands({"plan", sft, "sft"}).said, HasSubstr("unexpected argument 'sft'"));
  EXPECT_THAT(run_commands({"plan", "sft", "x"}).said, HasSubstr("unexpected argument 'x'"));
  EXPECT_THAT(run_commands({"plan", "sft", sft, sft}).said, HasSubstr("expected one recipe"));
  EXPECT_THAT(run_commands({"plan", "sfd"}).said, HasSubstr("expected pretrain, sft or grpo, or a recipe, saw 'sfd'"));
  EXPECT_THAT(run_commands({"plan"}).said, HasSubstr("expected pretrain, sft or grpo, or a recipe"));
}

TEST_F(PlanCommand, SaysWhichKindARecipeMayBeOf) {
  const std::string shared = "learning_rate: 1.0e-4\n";
  const auto error_of = [](const std::string& recipe) {
    try {
      return std::string(training_kind_of(recipe));
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(error_of(write("any.yaml", shared)), HasSubstr("its keys fit pretrain and sft and grpo"));
  EXPECT_EQ(error_of(write("my_grpo.yaml", shared)), "grpo") << "the file name decides a tie";
  EXPECT_EQ(error_of(write("sft.yaml", shared + "block_size: 3\n")), "pretrain") << "keys count before the file name";
  EXPECT_EQ(error_of(write("c.yaml", shared + "lr_scheduler_kwargs: {min_lr_rate: 0.1}\nreward-funcs: []\n")), "grpo");
  EXPECT_THAT(error_of(write("p.yaml", "stages: []\n")), HasSubstr("is the recipe of a pipeline"));
  EXPECT_EQ(training_kind_of(source_dir() / "recipes/quickstart/sft.yaml"), "sft");
  EXPECT_EQ(training_kind_of(source_dir() / "recipes/quickstart/grpo.yaml"), "grpo");
  EXPECT_EQ(training_kind_of(source_dir() / "recipes/quickstart/pretrain.yaml"), "pretrain");
}

// A plan with the real data is exact. Without a tokenizer the data cannot be read, and a line says so.
TEST_F(PlanCommand, ReadsDataWhereItCan) {
  write_miniature(folder_.path());
  const std::vector<std::string> keys{"plan",
                                      "pretrain",
                                      "--model_config_path",
                                      (folder_.path() / "model.json").string(),
                                      "--dataset_name",
                                      (folder_.path() / "data/corpus.jsonl").string(),
                                      "--block_size",
                                      "32",
                                      "--device",
                                      "cpu",
                                      "--config_overrides",
                                      "hidden_size=32"};
  std::vector<std::string> whole = keys;
  whole.insert(whole.end(), {"--tokenizer_name_or_path", (folder_.path() / "tokenizer").string()});
  const CommandResult exact = run_commands(whole);
  ASSERT_EQ(exact.code, 0) << exact.said;
  EXPECT_THAT(exact.printed, testing::ContainsRegex("\nsteps [0-9]+"));
  const CommandResult blind = run_commands({"plan", "sft", "--model_name_or_path", "qwen2.5-0.5b", "--dataset_name",
                                            "none.jsonl", "--max_length", "64", "--device", "cpu"});
  EXPECT_EQ(blind.code, 0) << blind.said;
  EXPECT_THAT(blind.said, HasSubstr("the data is not read"));
}

}  // namespace
}  // namespace hone::test
