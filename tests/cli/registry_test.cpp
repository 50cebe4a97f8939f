#include "cli/registry.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <new>

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

constexpr std::array<ForeignKey, 1> kForeign{{{"volume", ForeignKey::Kind::no_effect, "it is quiet"}}};

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
      {{"greet", "me"}, 1, "", "hone: error: hone greet: takes no argument 'me' (flags begin with --)\n"},
      {{"greet", "--nam", "me"}, 1, "", "hone: error: --nam: unknown key (did you mean name?)\n"},
      {{"gret"}, 1, "", "hone: error: hone 'gret': no such command (did you mean greet?)\n"},
      {{"fly"}, 1, "", "hone: error: hone 'fly': no such command (hone --help lists them)\n"},
      {{"greet", "--name", "error"}, 1, "", "hone: error: name: two lines\n"},
      {{"greet", "--name", "memory"}, 1, "", "hone: error: the machine has no more memory\n"},
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
      "Usage: hone greet [--config FILE.yaml] [--key value ...]\n\nSay hello.\n\nGreeting:\n"
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

// A folder with a NAME.cpp is a command; nothing else has to be edited.
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
