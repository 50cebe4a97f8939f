// Runs the tasks of README.md unchanged against a small hub that serves stand-ins for the models and data sets that the
// tasks name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "cli/program.h"
#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"
#include "support/environment.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "support/small_hub.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

// The ```sh blocks of README.md, in order.
std::vector<std::string> readme_tasks() {
  std::vector<std::string> tasks;
  bool in_block = false;
  for (const std::string& line : split(read_file(source_dir() / "README.md"), '\n')) {
    if (line == "```sh") {
      in_block = true;
      tasks.emplace_back();
    } else if (line == "```") {
      in_block = false;
    } else if (in_block) {
      tasks.back() += line + "\n";
    }
  }
  return tasks;
}

// Files of a folder without its subfolders, as a repository of the hub.
SmallHubFiles repository(const fs::path& folder) {
  SmallHubFiles files;
  for (const std::string& name : list_folder(folder)) {
    if (is_file(folder / name)) files[name].content = read_file(folder / name);
  }
  return files;
}

// Runs a shell script in `folder`, with this build's hone on the path.
Ended run_script(const std::string& script, const fs::path& folder) {
  const fs::path log = folder / "log.txt";
  const std::string command = "set -euo pipefail\nexport PATH=" + binary_dir().string() + ":$PATH\n" + script;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::chdir(folder.c_str()) == 0 && std::freopen(log.c_str(), "w", stderr) != nullptr &&
        ::dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) {
      ::execlp("bash", "bash", "-c", command.c_str(), nullptr);
    }
    ::_exit(127);
  }
  const int code = wait_for(child);
  return {code, read_file(log)};
}

TEST(Readme, TasksRunAsTheyStand) {
  const std::vector<std::string> tasks = readme_tasks();
  ASSERT_EQ(tasks.size(), 5u);
  for (const std::string& task : tasks)
    EXPECT_LT(split(task, '\n').size() - 1, 10u) << task;  // a line break at the end

  const TemporaryDirectory folder;
  write_miniature(folder.path());
  std::string config = read_file(folder.path() / "model.json");
  const std::string positions = "\"max_position_embeddings\": 256";
  config.replace(config.find(positions), positions.size(), "\"max_position_embeddings\": 2048");
  write_file(folder.path() / "model.json", config);
  const Ended trained =
      run_program(pretrain_arguments(folder.path(), {"--max_steps", "2", "--save_strategy", "no", "--output_dir",
                                                     (folder.path() / "model").string()}));
  ASSERT_EQ(trained.code, 0) << trained.output;
  SmallHub hub;
  hub.add("models/Qwen/Qwen2.5-0.5B-Instruct", repository(folder.path() / "model"));
  std::string problems;
  for (int i = 0; i < 8; ++i) {
    problems += text_of("{\"question\": \"2 + ", i, "?\", \"answer\": \"#### ", 2 + i, "\"}\n");
  }
  hub.add("datasets/openai/gsm8k",
          {{"main/train.jsonl", {.content = problems}}, {"main/test.jsonl", {.content = problems}}});
  const Environment environment(hub.variables(folder.path() / "cache"));
  const fs::path recipes = folder.path() / "open-r1/recipes/Qwen2.5-1.5B-Instruct/grpo";
  hone::create_directories(recipes);
  write_file(recipes / "config_demo.yaml", R"(# Model arguments
model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
torch_dtype: bfloat16
attn_implementation: flash_attention_2
dataset_name: openai/gsm8k
dataset_config: main
dataset_prompt_column: question
bf16: true
use_vllm: true
do_eval: false
gradient_accumulation_steps: 4
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
learning_rate: 2.0e-05
log_completions: true
logging_steps: 1
max_prompt_length: 64
max_completion_length: 64
num_generations: 4
per_device_train_batch_size: 4
num_train_epochs: 1
output_dir: data/demo
push_to_hub: false
report_to: []
reward_funcs: [accuracy, format, tag_count]
reward_weights: [1.0, 1.0, 1.0]
save_strategy: "epoch"
warmup_ratio: 0.1
)");
  for (const std::string& task : tasks) {
    const Ended ended = run_script(task, folder.path());
    EXPECT_EQ(ended.code, 0) << task << ended.output;
  }
  EXPECT_TRUE(is_file(folder.path() / "runs/sft/model.safetensors"));
  EXPECT_TRUE(is_file(folder.path() / "runs/grpo/model.safetensors"));
  EXPECT_THAT(read_file(folder.path() / "runs/compare/compare.html"), HasSubstr("gsm8k"));
}

}  // namespace
}  // namespace hone::test
