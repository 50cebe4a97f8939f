// Tests the completion scripts in their shells, the manual page and the built-in recipes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "cli/command_line.h"
#include "cli/completion/shells.h"
#include "cli/program.h"
#include "cli/recipes/embedded.h"
#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

bool has_shell(const std::string& name) { return std::system((name + " -c 'exit 0' > /dev/null 2>&1").c_str()) == 0; }

// Sources the completion script in the shell, runs `lines` and returns the words that they print.
std::vector<std::string> words_from(const std::string& shell, const std::string& lines) {
  const TemporaryDirectory folder;
  const fs::path completion = folder.path() / "completion";
  write_file(completion, run_commands({"completion", shell.substr(0, shell.find(' '))}).printed);
  write_file(folder.path() / "script", "source " + completion.string() + "\n" + lines + "\n");
  const std::string command = "cd '" + folder.path().string() + "' && " + shell + " script 2>&1 > out";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::string text = read_file(folder.path() / "out");
  for (char& c : text) c = c == '\n' || c == '\t' ? ' ' : c;
  std::vector<std::string> words = split(text, ' ');
  std::erase(words, std::string());
  return words;
}

// Returns bash's completions of the last word of a command line.
std::vector<std::string> bash_words(const std::string& line) {
  return words_from("bash --norc",
                    "COMP_WORDS=(" + line + ")\nCOMP_CWORD=$((${#COMP_WORDS[@]}-1))\n_hone\necho \"${COMPREPLY[@]}\"");
}

TEST(Completion, Bash) {
  if (!has_shell("bash")) GTEST_SKIP() << "bash is not installed";
  EXPECT_EQ(bash_words("hone pre"), std::vector<std::string>{"pretrain"});
  EXPECT_THAT(bash_words("hone ''"), Contains("completion"));
  EXPECT_EQ(bash_words("hone sft --learning"), std::vector<std::string>{"--learning_rate"});
  EXPECT_THAT(bash_words("hone grpo --num_g"), Contains("--num_generations"));
  EXPECT_THAT(bash_words("hone sft --num_g"), Not(Contains("--num_generations")));
  EXPECT_EQ(bash_words("hone sft --optim mu"), std::vector<std::string>{"muon"});
  EXPECT_EQ(bash_words("hone sft --optim = mu"), std::vector<std::string>{"muon"})
      << "bash splits --optim=mu into three words";
  EXPECT_EQ(bash_words("hone plan g"), std::vector<std::string>{"grpo"});
  EXPECT_EQ(bash_words("hone help bench"), std::vector<std::string>{"bench"});
  EXPECT_TRUE(bash_words("hone sft recipe").empty()) << "files are completed by the shell";
}

// Returns zsh's completions. Replaces compadd and _describe, because zsh's own functions need a terminal.
std::vector<std::string> zsh_words(const std::string& line) {
  return words_from("zsh -f",
                    "compadd() { shift; for name in \"$@\"; do print -l -- ${(P)name}; done }\n"
                    "_describe() { print -l -- ${(P)argv[-1]%%:*} }\n_files() { print files }\nwords=(" +
                        line + ")\nCURRENT=$#words\n_hone");
}

TEST(Completion, Zsh) {
  if (!has_shell("zsh")) GTEST_SKIP() << "zsh is not installed";
  EXPECT_THAT(zsh_words("hone ''"), Contains("pretrain"));
  EXPECT_THAT(zsh_words("hone sft --"), Contains("--learning_rate"));
  EXPECT_THAT(zsh_words("hone sft --"), Not(Contains("--num_generations")));
  EXPECT_THAT(zsh_words("hone sft --optim ''"), Contains("muon"));
  EXPECT_THAT(zsh_words("hone plan ''"), Contains("grpo"));
  EXPECT_EQ(zsh_words("hone sft ''"), std::vector<std::string>{"files"});
}

std::vector<std::string> fish_words(const std::string& line) {
  return words_from("fish --no-config", "complete -C '" + line + "' | string replace -r '\\t.*' ''\ntrue");
}

TEST(Completion, Fish) {
  if (!has_shell("fish")) GTEST_SKIP() << "fish is not installed";
  EXPECT_EQ(fish_words("hone pre"), std::vector<std::string>{"pretrain"});
  EXPECT_EQ(fish_words("hone sft --learning"), std::vector<std::string>{"--learning_rate"});
  EXPECT_THAT(fish_words("hone sft --num_g"), Not(Contains("--num_generations")));
  EXPECT_EQ(fish_words("hone sft --optim mu"), std::vector<std::string>{"muon"});
  EXPECT_THAT(fish_words("hone plan g"), Contains("grpo"));
}

TEST(Completion, KnowsTheFirstWordsOfACommand) {
  EXPECT_EQ(first_words("train|kernels|matmul"), (std::vector<std::string>{"train", "kernels", "matmul"}));
  EXPECT_EQ(first_words("[pretrain|sft] [RECIPE.yaml]"), (std::vector<std::string>{"pretrain", "sft"}));
  EXPECT_EQ(first_words("train|count [TEXT ...]"), (std::vector<std::string>{"train", "count"}));
  EXPECT_TRUE(first_words("[MODEL]").empty());
  EXPECT_TRUE(first_words("").empty());
}

TEST(Completion, RefusesAnotherShell) {
  const CommandResult result = run_commands({"completion", "tcsh"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.said, HasSubstr("expected bash, zsh or fish, saw 'tcsh'"));
}

// Every script and the manual page contain every command and every key.
TEST(Completion, NothingIsLeftOut) {
  CommandRegistry registry;
  register_all_cli(registry);
  const std::string manual = run_commands({"man"}).printed;
  const std::string scripts[] = {bash_completion(registry.commands()), zsh_completion(registry.commands()),
                                 fish_completion(registry.commands())};
  for (const Command& command : registry.commands()) {
    EXPECT_THAT(manual, HasSubstr(".SS \"hone " + command.name));
    for (const std::string& script : scripts) EXPECT_THAT(script, HasSubstr(command.name));
    for (const CommandKey& key : command.keys()) {
      EXPECT_THAT(manual, HasSubstr("\\fB\\-\\-" + key.name + "\\fR"));
      for (const std::string& script : scripts) EXPECT_THAT(script, HasSubstr(key.name));
    }
  }
}

TEST(Manual, HasNoRequestsButItsOwn) {
  const std::set<std::string> known{".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi"};
  for (const std::string& line : split(run_commands({"man"}).printed, '\n')) {
    if (line.starts_with('.')) {
      EXPECT_TRUE(known.contains(line.substr(0, line.find(' ')))) << line;
    }
    EXPECT_FALSE(line.starts_with('\'')) << line;
  }
}

TEST(RecipesCommand, TheProgramHoldsTheFilesOfTheFolder) {
  std::set<std::string> names;
  for (const EmbeddedRecipe& recipe : embedded_recipes()) {
    EXPECT_EQ(recipe.text, read_file(source_dir() / "recipes" / recipe.name)) << recipe.name;
    names.insert(std::string(recipe.name));
  }
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(source_dir() / "recipes")) {
    if (entry.is_regular_file()) files.insert(entry.path().lexically_relative(source_dir() / "recipes").string());
  }
  EXPECT_EQ(names, files);
}

TEST(RecipesCommand, PrintsAndWrites) {
  const TemporaryDirectory folder;
  EXPECT_THAT(run_commands({"recipes"}).printed, HasSubstr("quickstart/grpo.yaml"));
  const std::string sft = read_file(source_dir() / "recipes/quickstart/sft.yaml");
  EXPECT_EQ(run_commands({"recipes", "quickstart/sft"}).printed, sft);
  EXPECT_THAT(run_commands({"recipes", "quickstart/stf.yaml"}).said, HasSubstr("did you mean quickstart/sft.yaml?"));
  const std::string out = folder.path() / "out";
  EXPECT_THAT(run_commands({"recipes", "quickstart", "--output_dir", out}).said, HasSubstr("wrote 5 files"));
  EXPECT_EQ(read_file(fs::path(out) / "sft.yaml"), sft);
  EXPECT_EQ(run_commands({"recipes", "quickstart", "--output_dir", out}).code, 0)
      << "writing identical files again succeeds";
  write_file(fs::path(out) / "sft.yaml", "learning_rate: 1\n");
  const CommandResult kept = run_commands({"recipes", "quickstart", "--output_dir", out});
  EXPECT_EQ(kept.code, 1);
  EXPECT_THAT(kept.said, HasSubstr("sft.yaml: exists and differs"));
  EXPECT_EQ(read_file(fs::path(out) / "sft.yaml"), "learning_rate: 1\n");
}

// The tests run in a folder without recipes/. A file at the path of the first model's folder ends the run early.
TEST(QuickstartCommand, BringsItsRecipes) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "out";
  hone::create_directories(out);
  write_file(out / "pretrain", "");
  const Ended ended = run_program({"quickstart", "--output_dir", out.string(), "--device", "cpu"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("$ hone pretrain --config " + (out / "recipes/pretrain.yaml").string()));
  EXPECT_EQ(read_file(out / "recipes/pretrain.yaml"), read_file(source_dir() / "recipes/quickstart/pretrain.yaml"));
}

}  // namespace
}  // namespace hone::test
