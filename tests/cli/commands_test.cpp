// Tests the training commands by their command lines, on a miniature.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>

#include "cli/program.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "text/bpe_trainer.h"
#include "train/metrics.h"

namespace hone::test {
namespace {

// Returns the last line of the output; notices come before it.
std::string last_line(std::string text) {
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The miniature and a model that was trained for two steps, shared by all tests.
class CommandsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    write_miniature(folder_->path());
    const Ended ended = run_program(pretrain_arguments(
        folder_->path(), {"--max_steps", "2", "--per_device_train_batch_size", "2", "--output_dir", path("model")}));
    ASSERT_EQ(ended.code, 0) << ended.output;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  [[nodiscard]] static std::string path(const std::string& relative) { return (folder_->path() / relative).string(); }

  // Runs `hone NAME` on that model, with `more`.
  static Ended run(const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{name, "--model_name_or_path", path("model"), "--max_steps", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }

  inline static std::unique_ptr<TemporaryDirectory> folder_;
};

TEST_F(CommandsTest, GrpoEvaluatesNamesItsRunAndShowsCompletions) {
  fs::create_directories(path("split"));
  fs::copy_file(path("data/prompts.jsonl"), path("split/train.jsonl"));
  const std::vector<std::string> held_out = split(read_file(path("data/held_out.jsonl")), '\n');
  write_file(path("split/test.jsonl"), held_out[0] + "\n" + held_out[1] + "\n" + held_out[2] + "\n");
  const Ended ended = run("grpo", {"--dataset_name",
                                   path("split"),
                                   "--num_generations",
                                   "4",
                                   "--per_device_train_batch_size",
                                   "8",
                                   "--max_completion_length",
                                   "8",
                                   "--reward_funcs",
                                   "tag_count,length",
                                   "--logging_steps",
                                   "1",
                                   "--eval_strategy",
                                   "steps",
                                   "--eval_steps",
                                   "2",
                                   "--eval_on_start",
                                   "--run_name",
                                   "trial 7",
                                   "--log_completions",
                                   "--num_completions_to_print",
                                   "3",
                                   "--beta",
                                   "0",
                                   "--output_dir",
                                   path("grpo")});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("hone: grpo trial 7: "));
  EXPECT_EQ(count_of(ended.output, ", advantage "), 4 * 3u) << "two steps, two evaluations";

  std::vector<std::int64_t> evaluated;
  for (const MetricRow& row : read_metrics(path("grpo/metrics.jsonl"))) {
    if (row.find("eval_reward")) evaluated.push_back(row.step);
  }
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{0, 2}));
  for (const std::string& line : split(read_file(path("grpo/metrics.jsonl")), '\n')) {
    if (!line.empty()) {
      EXPECT_EQ(parse_json(line, "metrics").at("run_name"), "trial 7");
    }
  }
  EXPECT_EQ(count_of(read_file(path("grpo/completions/eval-step-2.jsonl")), "\n"), 3 * 4u);

  const Ended last = run_program({"grpo", "--show", path("grpo")});
  EXPECT_EQ(last.code, 0);
  EXPECT_EQ(count_of(last.output, "---- step 2, prompt "), 2u);
  EXPECT_EQ(count_of(last.output, "---- advantage "), 8u);
  EXPECT_EQ(run_program({"grpo", "--show", path("grpo"), "2"}).output, last.output);
  EXPECT_NE(run_program({"grpo", "--show", path("grpo"), "1"}).output, last.output);
  EXPECT_EQ(count_of(run_program({"grpo", "--show", path("grpo"), "eval-0"}).output, "---- advantage "), 12u);
  const Ended some = run_program({"grpo", "--show", path("grpo"), "2", "--num_completions_to_print", "5"});
  EXPECT_EQ(count_of(some.output, "---- advantage "), 5u);
  const Ended none = run_program({"grpo", "--show", path("grpo"), "9"});
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.output,
            "hone: error: " + path("grpo") + ": has no completions of step '9' (there are 2, from step 1 to 2)\n");
}

TEST_F(CommandsTest, AFolderOfTheConfigurationsNameIsRead) {
  fs::create_directories(path("configured/short"));
  fs::copy_file(path("data/corpus.jsonl"), path("configured/all.jsonl"));
  write_file(path("configured/short/some.jsonl"), "{\"text\": \"1 + 1 = 2\"}\n");
  const auto tokens = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--dataset_name",
                                       path("configured"),
                                       "--overwrite_output_dir",
                                       "--output_dir",
                                       path("configured-out"),
                                       "--logging_steps",
                                       "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run("sft", arguments);
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_EQ(count_of(ended.output, "has no configuration or folder of that name; all its files are read"),
              more.empty() || more[1] == "short" ? 0u : 1u)
        << ended.output;
    return read_metrics(path("configured-out/metrics.jsonl")).front().find("num_tokens").value();
  };
  const double all = tokens({});
  EXPECT_LT(tokens({"--dataset_config", "short"}), all);
  EXPECT_EQ(tokens({"--dataset_config", "default"}), all);
}

TEST_F(CommandsTest, SftGrowsAVocabularyWithoutChatMlAndSavesIt) {
  BpeTrainer trainer({.vocab_size = 280, .special_tokens = {"<|endoftext|>"}, .eos_token = "<|endoftext|>"});
  trainer.add("What is 1 + 2? The answer is 3. The answer is 4.");
  const Tokenizer plain = trainer.train();
  plain.save(path("plain/tokenizer"));
  fs::copy_file(path("model.json"), path("plain/model.json"));
  fs::create_directories(path("plain/data"));
  fs::copy_file(path("data/corpus.jsonl"), path("plain/data/corpus.jsonl"));
  const Ended pretrained =
      run_program(pretrain_arguments(path("plain"), {"--max_steps", "1", "--output_dir", path("plain/model")}));
  ASSERT_EQ(pretrained.code, 0) << pretrained.output;
  const std::vector<std::string> sft{"sft",
                                     "--model_name_or_path",
                                     path("plain/model"),
                                     "--dataset_name",
                                     path("data/sft.jsonl"),
                                     "--max_steps",
                                     "2",
                                     "--save_steps",
                                     "1",
                                     "--logging_steps",
                                     "1",
                                     "--output_dir",
                                     path("plain/sft")};
  const Ended ended = run_program(sft);
  ASSERT_EQ(ended.code, 0) << ended.output;
  const auto vocab = plain.vocab_size();
  EXPECT_THAT(ended.output, HasSubstr("the vocabulary grows from " + std::to_string(vocab) + " to " +
                                      std::to_string(vocab + 2) + " tokens"));
  EXPECT_EQ(read_json(path("plain/sft/config.json")).at("vocab_size"), vocab + 2);
  const Tokenizer saved = Tokenizer::load(path("plain/sft"));
  EXPECT_EQ(saved.token_id("<|im_end|>"), vocab + 1);
  EXPECT_EQ(saved.eos_token_id(), vocab + 1);
  EXPECT_EQ(read_json(path("plain/sft/generation_config.json")).at("eos_token_id"), vocab + 1);

  // The grown model is an ordinary model: it resumes, and can be tuned again without growing.
  std::vector<std::string> resumed = sft;
  resumed.back() = path("plain/resumed");
  resumed.insert(resumed.end(), {"--resume_from_checkpoint", path("plain/sft/checkpoint-1")});
  ASSERT_EQ(run_program(resumed).code, 0);
  EXPECT_EQ(read_file(path("plain/resumed/model.safetensors")), read_file(path("plain/sft/model.safetensors")));
  std::vector<std::string> again = sft;
  again[2] = path("plain/sft");
  again.back() = path("plain/again");
  const Ended second = run_program(again);
  EXPECT_EQ(second.code, 0) << second.output;
  EXPECT_THAT(second.output, Not(HasSubstr("grows")));
}

// The miniature has 256 positions. A command that needs more fails before it starts, and its one-line error names the
// key to change.
TEST_F(CommandsTest, NothingGoesBeyondTheModelsPositions) {
  std::string words;
  for (int i = 0; i < 400; ++i) words += "What is 1 + 2? ";
  write_file(path("long.jsonl"), Json{{"text", words}, {"prompt", "Go on."}, {"completion", words}}.dump() + "\n");
  const std::string beyond = " tokens, but the model has 256 positions (max_position_embeddings) (";
  const auto expect_refused = [&](const std::vector<std::string>& arguments, const std::string& line) {
    const Ended ended = run_program(arguments);
    EXPECT_EQ(ended.code, 1) << ended.output;
    EXPECT_THAT(last_line(ended.output), HasSubstr(line));
  };
  const std::string long_data = path("long.jsonl");
  expect_refused(pretrain_arguments(folder_->path(), {"--dataset_name", long_data, "--block_size", "300", "--max_steps",
                                                      "1", "--output_dir", path("o")}),
                 "block_size: sequences of up to 300" + beyond + "at most 256; ");
  for (const std::vector<std::string>& before : {std::vector<std::string>{"sft"}, {"plan", "sft"}}) {
    std::vector<std::string> arguments = before;
    arguments.insert(arguments.end(), {"--model_name_or_path", path("model"), "--dataset_name", long_data,
                                       "--max_length", "300", "--max_steps", "1", "--output_dir", path("o")});
    expect_refused(arguments, "max_length: sequences of up to 300" + beyond + "at most 256; ");
  }
  expect_refused({"grpo", "--model_name_or_path", path("model"), "--dataset_name", path("data/prompts.jsonl"),
                  "--reward_funcs", "accuracy", "--max_completion_length", "256", "--output_dir", path("o")},
                 "tokens: max_completion_length at most ");
  expect_refused(
      {"grpo", "--model_name_or_path", path("model"), "--dataset_name", path("data/prompts.jsonl"), "--reward_funcs",
       "accuracy", "--max_completion_length", "8", "--system_prompt", words, "--output_dir", path("o")},
      "tokens: max_prompt_length below 256");
  expect_refused({"generate", "--model_name_or_path", path("model"), "--dataset_name", path("data/prompts.jsonl"),
                  "--max_new_tokens", "256", "--output_dir", path("o")},
                 "max_new_tokens: sequences of up to ");
  expect_refused({"eval", path("model"), "--dataset_name", path("data/held_out.jsonl"), "--max_model_len", "257"},
                 "max_model_len: sequences of up to 257" + beyond + "at most 256; ");
  expect_refused({"chat", path("model"), "--max_model_len", "257"},
                 "max_model_len: sequences of up to 257" + beyond + "at most 256; ");

  // A row longer than the positions may hold several documents, and default lengths stop at the model's positions. A
  // notice says so in both cases.
  const Ended row = run_program(
      pretrain_arguments(folder_->path(), {"--block_size", "300", "--max_steps", "1", "--output_dir", path("row")}));
  EXPECT_EQ(row.code, 0) << row.output;
  EXPECT_THAT(row.output, HasSubstr("block_size is 300, but the model has 256 positions (max_position_embeddings): no "
                                    "document is that long, the longest has "));
  const Ended capped = run_program({"generate", "--model_name_or_path", path("model"), "--dataset_name",
                                    path("data/prompts.jsonl"), "--dataset_end_index", "2", "--temperature", "0",
                                    "--require_end", "false", "--output_dir", path("capped")});
  EXPECT_EQ(capped.code, 0) << capped.output;
  EXPECT_THAT(capped.output, HasSubstr(" instead of max_new_tokens 8192"));
}

TEST_F(CommandsTest, WhatIsWrongGetsOneLine) {
  write_file(path("empty.jsonl"), "");
  write_file(path("wrong.jsonl"), "{\"foo\": 1}\n{\"foo\": 2}\n{\"foo\": 3}\n");
  const std::string data = path("data/sft.jsonl");
  const std::vector<std::pair<std::vector<std::string>, std::string>> table{
      {{"sft", "--dataset_name", path("empty.jsonl"), "--output_dir", path("o")},
       path("empty.jsonl") + ": holds no rows"},
      {{"sft", "--dataset_name", path("wrong.jsonl"), "--output_dir", path("o")},
       path("wrong.jsonl") + ": leaves nothing to use: 3 of 3 rows left out: " + path("wrong.jsonl") +
           " line 1 and 2 more: no column messages, 'text' (dataset_text_field), prompt with completion, or problem "
           "with solution; the columns are: foo"},
      {{"sft", "--dataset_name", "no/such.jsonl", "--output_dir", path("o")},
       "no/such.jsonl: no such file or folder (give the path of a .jsonl, .json, .csv, .tsv, .txt (each also .gz or "
       ".zst), "
       ".parquet or .arrow file, or of a folder of them)"},
      {{"sft", "--dataset_name", data, "--output_dir", path("empty.jsonl")},
       "output_dir: cannot create the folder " + path("empty.jsonl") + ": Not a directory"},
      {{"sft", "--dataset_name", data, "--output_dir", path("o"), "--eval_strategy", "steps"},
       "eval_strategy: is steps, but " + data +
           " has no split 'test' to evaluate on (set eval_dataset_name; hone pretrain may hold out test_split_size)"},
      {{"grpo", "--dataset_name", path("data/prompts.jsonl"), "--output_dir", path("o"), "--eval_on_start"},
       "eval_on_start: is true, but " + path("data/prompts.jsonl") +
           " has no split 'test' to evaluate on (set eval_dataset_name; hone pretrain may hold out test_split_size)"},
  };
  for (const auto& [arguments, line] : table) {
    const Ended ended = run(arguments[0], {arguments.begin() + 1, arguments.end()});
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(last_line(ended.output), "hone: error: " + line);
  }
  const Ended eval = run_program(
      {"eval", path("model"), "--dataset_name", path("data/held_out.jsonl"), "--output_dir", path("wrong.jsonl")});
  EXPECT_EQ(eval.code, 1);
  EXPECT_EQ(eval.output,
            "hone: error: output_dir: cannot create the folder " + path("wrong.jsonl") + ": Not a directory\n");
  EXPECT_EQ(run_program({"chat"}).output, "hone: error: hone chat: no model given (hone chat FOLDER)\n");
  EXPECT_EQ(run_program({"help"}).output, run_program({"--help"}).output);
}

// Runs the program on a pseudo-terminal, types these lines and returns its output.
std::string said_on_terminal(const std::vector<std::string>& arguments, const std::string& typed) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    const std::string program = (binary_dir() / "hone").string();
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  EXPECT_EQ(::write(terminal, typed.data(), typed.size()), static_cast<ssize_t>(typed.size()));
  std::string said;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = ::read(terminal, buffer.data(), buffer.size())) > 0;) {
    said.append(buffer.data(), static_cast<std::size_t>(count));
  }
  ::close(terminal);
  EXPECT_EQ(wait_for(child), 0);
  return said;
}

TEST_F(CommandsTest, ChatSpeaksOfItsSetCommand) {
  const std::string said =
      said_on_terminal({"chat", path("model"), "--keep_history", "false"},
                       "/set foo\n/set foo 1\n/set device cpu\n/set top_p 9\n/set top_p 0.5\nquit\n");
  EXPECT_THAT(said, HasSubstr("/set: expected a name and a value, saw 'foo'"));
  EXPECT_THAT(said, HasSubstr("/set: 'foo' cannot be set (temperature, top_p, top_k, min_p, repetition_penalty"));
  EXPECT_THAT(said, HasSubstr("/set: 'device' cannot be set")) << "the device cannot change during a conversation";
  EXPECT_THAT(said, HasSubstr("/set top_p: expected a number above 0 and of at most 1, saw '9'"));
  EXPECT_THAT(said, Not(HasSubstr("--")));
}

}  // namespace
}  // namespace hone::test
