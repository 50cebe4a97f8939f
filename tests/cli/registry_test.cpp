#include "cli/registry.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <new>
#include <set>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "support/golden.h"
#include "support/paths.h"

namespace hone {
namespace {

struct Outcome {
  int code = 0;
  std::string out;
  std::string error;
};

Outcome run_with(const CommandRegistry& registry, const std::vector<std::string>& arguments) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.code = run_command_line(registry, arguments);
  std::fflush(stdout);
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.error = testing::internal::GetCapturedStderr();
  return outcome;
}

struct GreetOptions {
  std::string name = "you";
  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Greeting");
    v("name", name, "Whom");
  }
};

int greet(const GreetOptions& options, const OptionInput&) {
  if (options.name == "error") throw Error("name", "two\nlines");
  if (options.name == "defect") HONE_ASSERT(false, "seen ", 3);
  if (options.name == "memory") throw std::bad_alloc();
  if (options.name == "interrupt") throw Interrupted();
  const char* home = std::getenv("HONE_TEST_GREETING");
  std::printf("%s %s\n", home == nullptr ? "hello" : home, options.name.c_str());
  return 0;
}

constexpr std::array<ForeignKey, 1> kForeign{{{"volume", ForeignKey::Kind::kNoEffect, "it is quiet"}}};

CommandRegistry greeters() {
  CommandRegistry registry;
  registry.add(make_command<GreetOptions>({.name = "greet", .summary = "Say hello"}, greet, kForeign));
  return registry;
}

TEST(CommandLine, ExitCodesAndLines) {
  const CommandRegistry registry = greeters();
  struct Case {
    std::vector<std::string> arguments;
    int code;
    std::string out, error;
  };
  const std::vector<Case> cases{
      {{"greet"}, 0, "hello you\n", ""},
      {{"greet", "--name", "me"}, 0, "hello me\n", ""},
      {{"greet", "me"},
       1,
       "",
       "hone: error: hone greet: unexpected argument 'me' (a recipe ends in .yaml, flags begin with --)\n"},
      {{"greet", "--nam", "me"}, 1, "", "hone: error: --nam: unknown key (did you mean --name?)\n"},
      {{"gret"}, 1, "", "hone: error: hone 'gret': no such command (did you mean greet?)\n"},
      {{"fly"}, 1, "", "hone: error: hone 'fly': no such command (hone --help lists them)\n"},
      {{"greet", "--name", "error"}, 1, "", "hone: error: name: two lines\n"},
      {{"greet", "--name", "memory"}, 1, "", "hone: error: out of host memory\n"},
      {{"greet", "--name", "interrupt"}, 130, "", "hone: interrupted\n"},
      {{"greet", "--volume", "3"}, 0, "hello you\n", "hone: volume has no effect: it is quiet\n"},
      {{"greet", "--volume", "4"}, 0, "hello you\n", ""},
  };
  for (const Case& one : cases) {
    const Outcome outcome = run_with(registry, one.arguments);
    EXPECT_EQ(outcome.code, one.code) << one.error;
    EXPECT_EQ(outcome.out, one.out);
    EXPECT_EQ(outcome.error, one.error);
  }
  const Outcome defect = run_with(registry, {"greet", "--name", "defect"});
  EXPECT_EQ(defect.code, 2);
  EXPECT_NE(defect.error.find("hone: a defect in hone, please report"), std::string::npos) << defect.error;
  EXPECT_NE(defect.error.find("seen 3"), std::string::npos) << defect.error;
}

TEST(CommandLine, HelpIsAnAnswerNotAnError) {
  const CommandRegistry registry = greeters();
  const std::string help =
      "Usage: hone greet [RECIPE.yaml] [--key value ...]\n\nSay hello.\n\nGreeting:\n"
      "  --name TEXT                       Whom [you]\n";
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"greet", "--help"},
                                                    {"greet", "-h"},
                                                    {"help", "greet"},
                                                    {"greet", "--nonsense", "--help"}}) {
    const Outcome outcome = run_with(registry, arguments);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.out, help);
  }
  EXPECT_EQ(run_with(registry, {"--help"}).code, 0);
  EXPECT_EQ(run_with(registry, {}).code, 1);
  EXPECT_EQ(run_with(registry, {}).out, run_with(registry, {"--help"}).out);
  EXPECT_EQ(run_with(registry, {"--version"}).out.substr(0, 5), "hone ");
}

TEST(CommandLine, TheFileSetsTheEnvironment) {
  const test::TemporaryDirectory folder;
  const std::string path = (folder.path() / "c.yaml").string();
  write_file(path, "env: {HONE_TEST_GREETING: good day}\nname: file\n");
  const Outcome outcome = run_with(greeters(), {"greet", "--config", path});
  ::unsetenv("HONE_TEST_GREETING");
  EXPECT_EQ(outcome.out, "good day file\n");
}

TEST(CommandLine, AnArgumentThatEndsInYamlIsTheRecipe) {
  const test::TemporaryDirectory folder;
  const std::string path = (folder.path() / "c.yaml").string();
  const std::string other = (folder.path() / "d.yml").string();
  write_file(path, "name: file\n");
  write_file(other, "name: other\n");
  const CommandRegistry registry = greeters();
  EXPECT_EQ(run_with(registry, {"greet", path}).out, "hello file\n");
  EXPECT_EQ(run_with(registry, {"greet", other}).out, "hello other\n");
  EXPECT_EQ(run_with(registry, {"greet", "--name", "flag", path}).out, "hello flag\n")
      << "a flag overrides the recipe on either side of it";
  EXPECT_EQ(run_with(registry, {"greet", path, "--name", "flag"}).out, "hello flag\n");
  EXPECT_EQ(run_with(registry, {"greet", "--name", path}).out, "hello " + path + "\n")
      << "the value of a flag is not an argument";
  EXPECT_NE(
      run_with(registry, {"greet", path, other}).error.find("expected one recipe, saw '" + path + "' and '" + other),
      std::string::npos);
  EXPECT_NE(run_with(registry, {"greet", path, "--config", other}).error.find("--config: given twice"),
            std::string::npos);
  EXPECT_EQ(run_with(registry, {"greet", path, "me"}).code, 1);
  EXPECT_NE(run_with(registry, {"greet", "none.yaml"}).error.find("none.yaml: cannot open"), std::string::npos);
}

TEST(CommandLine, NamesOfOtherToolsAreUnderstood) {
  CommandRegistry registry;
  register_all_cli(registry);
  const auto meant = [&](const std::vector<std::string>& arguments) {
    const std::string error = run_with(registry, arguments).error;
    const std::size_t begin = error.find("did you mean ");
    return begin == std::string::npos ? error : error.substr(begin + 13, error.rfind('?') - begin - 13);
  };
  EXPECT_EQ(meant({"train"}), "pretrain, sft or grpo");
  EXPECT_EQ(meant({"trian"}), "pretrain, sft or grpo");
  EXPECT_EQ(meant({"finetune"}), "sft");
  EXPECT_EQ(meant({"evaluate"}), "eval");
  EXPECT_EQ(meant({"stf"}), "sft");
  EXPECT_EQ(meant({"sft", "--lr", "1e-3"}), "--learning_rate");
  EXPECT_EQ(meant({"sft", "--epochs=2"}), "--num_train_epochs");
  EXPECT_EQ(meant({"grpo", "--batch-size", "2"}), "--per_device_train_batch_size");
  EXPECT_EQ(meant({"bench", "train", "--per_device_train_batch_size", "2"}), "--batch_size");
  EXPECT_EQ(meant({"sft", "--lora_rank", "2"}), "--lora_r");
  EXPECT_EQ(meant({"sft", "--seq_len", "2"}), "--max_length");
  EXPECT_EQ(meant({"pretrain", "--seq_len", "2"}), "--block_size");
  EXPECT_EQ(meant({"eval", "--model", "m"}), "--model_name_or_path");
}

// Every suggestion for a word of another tool is a key of some command. A common key has no suggestion.
TEST(CommandLine, WordsOfOtherToolsMeanKeysThatThereAre) {
  CommandRegistry registry;
  register_all_cli(registry);
  std::set<std::string> keys;
  for (const Command& command : registry.commands()) {
    for (const CommandKey& key : command.keys()) keys.insert(key.name);
  }
  for (const char* word : {"lr", "epochs", "batch_size", "lora_rank", "model", "dataset", "output", "seq_len", "kl"}) {
    ASSERT_FALSE(suggested_keys(word).empty()) << word;
    for (const std::string_view key : suggested_keys(word)) EXPECT_TRUE(keys.contains(std::string(key))) << key;
  }
  EXPECT_TRUE(suggested_keys("learning_rate").empty());
}

TEST(CommandLine, NoArgumentIsLost) {
  CommandRegistry registry;
  register_all_cli(registry);
  for (const Command& command : registry.commands()) {
    if (command.name == "tokenizer") continue;  // accepts any text as arguments
    const Outcome outcome = run_with(registry, {command.name, "one", "two", "three"});
    EXPECT_EQ(outcome.code, 1) << command.name;
    EXPECT_NE(outcome.error.find("hone: error: hone " + command.name), std::string::npos)
        << command.name << ": " << outcome.error;
  }
  EXPECT_NE(run_with(registry, {"help", "sft", "x"}).error.find("unexpected argument 'x'"), std::string::npos);
  EXPECT_NE(run_with(registry, {"--version", "x"}).error.find("unexpected argument 'x'"), std::string::npos);
  EXPECT_EQ(run_with(registry, {"--help", "sft"}).out, run_with(registry, {"sft", "--help"}).out);
  EXPECT_NE(run_with(registry, {"eval", "m", "--compare", "a"}).error.find("unexpected argument 'm'"),
            std::string::npos);
  EXPECT_NE(
      run_with(registry, {"eval", "m", "--model_name_or_path", "n"}).error.find("expected one model, saw 'm' and 'n'"),
      std::string::npos);
}

// Every folder NAME with a NAME.cpp is a command, without any other registration.
TEST(CommandLine, EveryFolderIsRegistered) {
  CommandRegistry registry;
  register_all_cli(registry);
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "src" / "cli")) {
    const std::string name = entry.path().filename().string();
    if (std::filesystem::exists(entry.path() / (name + ".cpp"))) folders.insert(name);
  }
  std::set<std::string> commands;
  for (const Command& command : registry.commands()) commands.insert(command.name);
  EXPECT_EQ(commands, folders);
  EXPECT_FALSE(commands.empty());
}

TEST(CommandLine, HelpOfEveryCommandFitsAndSaysWhatItIs) {
  CommandRegistry registry;
  register_all_cli(registry);
  for (const Command& command : registry.commands()) {
    const Outcome outcome = run_with(registry, {command.name, "--help"});
    EXPECT_EQ(outcome.code, 0) << command.name;
    EXPECT_EQ(outcome.out.find("Usage: hone " + command.name), 0u) << command.name;
    EXPECT_NE(outcome.out.find(command.summary), std::string::npos) << command.name;
    for (std::size_t at = 0; at < outcome.out.size();) {
      const std::size_t end = outcome.out.find('\n', at);
      EXPECT_LE(end - at, 130u) << command.name << ": " << outcome.out.substr(at, end - at);
      at = end + 1;
    }
  }
}

}  // namespace
}  // namespace hone
