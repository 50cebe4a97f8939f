// Tests hone chat on a pseudo-terminal, as a user sees it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "cli/chat/message_lines.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "core/files.h"
#include "core/json_value.h"
#include "support/miniature.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Editing keys may be typed only after a prompt. Before that, the terminal driver handles them itself.
constexpr const char* kEnter = "\r";
constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlD = "\x04";
constexpr const char* kLeft = "\x1b[D";

class ChatTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    write_miniature(folder_->path());
    const Ended ended = run_program(
        pretrain_arguments(folder_->path(), {"--max_steps", "1", "--per_device_train_batch_size", "2", "--output_dir",
                                             model(), "--config_overrides", "max_position_embeddings=100000"}));
    ASSERT_EQ(ended.code, 0) << ended.output;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string model() { return (folder_->path() / "model").string(); }
  static std::string saved() { return (folder_->path() / "conversation.json").string(); }
  static std::vector<std::string> chat(const std::string& max_tokens, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"chat",         model(),    "--temperature",  "0",
                                       "--max_tokens", max_tokens, "--keep_history", "false"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // The tokens that end an answer, as a list. Penalties make a model draw each token at some time; an answer without
  // these lasts until it is stopped.
  static std::string stop_tokens(const std::string& folder) {
    const Json ids = read_json(std::filesystem::path(folder) / "generation_config.json").at("eos_token_id");
    return ids.is_array() ? ids.dump() : "[" + ids.dump() + "]";
  }
  // Saves the conversation, leaves the chat and returns the user's messages.
  static std::vector<std::string> questions(TerminalProgram& program) {
    program.type("/save " + saved() + kEnter + "/quit" + kEnter);
    EXPECT_EQ(program.wait(), 0) << program.output();
    std::vector<std::string> texts;
    for (const Json& message : read_json(saved())) {
      if (message["role"] == "user") texts.push_back(message["content"].get<std::string>());
    }
    return texts;
  }

 private:
  static std::unique_ptr<TemporaryDirectory> folder_;
};
std::unique_ptr<TemporaryDirectory> ChatTest::folder_;

// Minimal containers set no locale, or one that is not installed.
TEST_F(ChatTest, EveryCharacterThatIsTypedIsKept) {
  for (const char* locale : {"", "C", "POSIX", "C.UTF-8", "xx_XX.UTF-8"}) {
    std::map<std::string, std::string> variables;
    if (*locale != '\0') variables["LANG"] = locale;
    TerminalProgram program(chat("2"), variables);
    ASSERT_TRUE(program.sees("> ")) << program.output();
    program.type(std::string("naïve 日本 🙂 âêÿ ß") + kEnter);
    ASSERT_TRUE(program.sees("allows more")) << "an answer";
    ASSERT_TRUE(program.sees("> "));
    // Editing keys act on characters, not on bytes.
    program.type(std::string("日本") + kLeft + "é" + kLeft + "\x7f" + kEnter);
    EXPECT_THAT(questions(program), ElementsAre("naïve 日本 🙂 âêÿ ß", "é本")) << locale;
  }
}

TEST_F(ChatTest, APasteIsOneMessage) {
  TerminalProgram program(chat("2"));
  ASSERT_TRUE(program.sees("\x1b[?2004h")) << "bracketed paste is not enabled: " << program.output();
  program.type(std::string("Look: \x1b[200~def f():\r\treturn 'ü' \\\\\r/quit\r\x1b[201~") + kEnter);
  EXPECT_THAT(questions(program), ElementsAre("Look: def f():\n\treturn 'ü' \\\\\n/quit"));
}

TEST_F(ChatTest, AMessageOfSeveralLinesCanBeTyped) {
  TerminalProgram program(chat("2"));
  program.type(std::string("one \\") + kEnter + "two" + kEnter);
  program.type(std::string("\"\"\"first") + kEnter + "/quit" + kEnter + "" + kEnter + "last\"\"\"" + kEnter);
  EXPECT_THAT(questions(program), ElementsAre("one \ntwo", "first\n/quit\n\nlast"));
}

TEST_F(ChatTest, CtrlCDropsTheLineAndLeavesWhereThereIsNone) {
  TerminalProgram program(chat("2"));
  ASSERT_TRUE(program.sees("> "));
  program.type("dropped");
  ASSERT_TRUE(program.sees("dropped"));
  program.type(kCtrlC);
  ASSERT_TRUE(program.sees("(press Ctrl+C again or Ctrl+D to leave)"));
  ASSERT_TRUE(program.sees("> "));
  program.type(std::string("\"\"\"a block") + kEnter);
  ASSERT_TRUE(program.sees(". "));
  program.type(kCtrlC);
  ASSERT_TRUE(program.sees("to leave)"));
  ASSERT_TRUE(program.sees("> "));
  program.type(std::string("kept") + kEnter);
  ASSERT_TRUE(program.sees("allows more")) << "an answer";
  ASSERT_TRUE(program.sees("> "));
  program.type(kCtrlC);
  ASSERT_TRUE(program.sees("to leave)")) << "the first Ctrl+C on an empty line";
  ASSERT_TRUE(program.sees("> "));
  program.type("/save " + saved() + kEnter);
  ASSERT_TRUE(program.sees("wrote"));
  EXPECT_EQ(read_json(saved()).size(), 2u);
  ASSERT_TRUE(program.sees("> "));
  program.type(kCtrlC);
  ASSERT_TRUE(program.sees("to leave)"));
  ASSERT_TRUE(program.sees("> "));
  program.type(kCtrlC);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_THAT(program.output(), testing::Not(HasSubstr("hone: ")));
}

TEST_F(ChatTest, CtrlCStopsTheAnswerAndASecondLeaves) {
  TerminalProgram program(chat("90000", {"--max_model_len", "100000"}));
  ASSERT_TRUE(program.sees("> "));
  program.type(std::string("go on") + kEnter);
  ASSERT_TRUE(program.sees("\x1b[?2004l"));
  ASSERT_TRUE(program.sees_more()) << "the answer begins";
  program.type(kCtrlC);
  ASSERT_TRUE(program.sees("(stopped; press Ctrl+C again or Ctrl+D to leave)")) << program.output();
  ASSERT_TRUE(program.sees("> "));
  program.type(kCtrlC);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_THAT(program.output(), testing::Not(HasSubstr("hone: ")));
}

// The first process of a tensor group has the terminal; Ctrl+C stops its answer and not the group.
TEST_F(ChatTest, ATensorGroupConverses) {
  const std::string divided = model() + " of two key heads";
  const Ended trained =
      run_program(pretrain_arguments(std::filesystem::path(model()).parent_path(),
                                     {"--max_steps", "1", "--per_device_train_batch_size", "2", "--output_dir", divided,
                                      "--config_overrides", "max_position_embeddings=100000,num_key_value_heads=2"}));
  ASSERT_EQ(trained.code, 0) << trained.output;
  std::vector<std::vector<std::string>> answers;
  for (const char* size : {"1", "2"}) {
    TerminalProgram program({"chat", divided, "--temperature", "0", "--max_tokens", "12", "--max_model_len", "100000",
                             "--keep_history", "false", "--device", "cpu", "--tensor_parallel_size", size,
                             "--banned_token_ids", stop_tokens(divided)});
    ASSERT_TRUE(program.sees("> ")) << program.output();
    program.type(std::string("What is 1 + 2?") + kEnter);
    ASSERT_TRUE(program.sees("allows more")) << program.output();
    ASSERT_TRUE(program.sees("> "));
    program.type("/save " + saved() + kEnter);
    ASSERT_TRUE(program.sees("wrote"));
    std::vector<std::string>& texts = answers.emplace_back();
    for (const Json& message : read_json(saved())) texts.push_back(message["content"].get<std::string>());
    ASSERT_TRUE(program.sees("> "));
    // An engine with penalties replaces the first one.
    program.type(std::string("/set frequency_penalty 1") + kEnter + "/set max_tokens 90000" + kEnter + "go on" +
                 kEnter);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(program.sees("\x1b[?2004l"));
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(program.sees_more()) << "the answer begins";
      program.type(kCtrlC);
      ASSERT_TRUE(program.sees("(stopped; press Ctrl+C again or Ctrl+D to leave)")) << program.output();
      ASSERT_TRUE(program.sees("> "));
      if (i > 0) continue;
      program.type(std::string("more") + kEnter);
      ASSERT_TRUE(program.sees("\x1b[?2004l"));
    }
    program.type(kCtrlC);
    EXPECT_EQ(program.wait(), 0) << program.output();
  }
  ASSERT_EQ(answers[0].size(), 2u);
  EXPECT_EQ(answers[0], answers[1]);
}

TEST_F(ChatTest, CtrlDLeavesAndSoDoesTheSystem) {
  TerminalProgram program(chat("2"));
  ASSERT_TRUE(program.sees("> "));
  program.type(kCtrlD);
  EXPECT_EQ(program.wait(), 0);
  TerminalProgram other(chat("2"));
  ASSERT_TRUE(other.sees("> "));
  other.signal(SIGTERM);
  EXPECT_EQ(other.wait(), 130);
}

TEST_F(ChatTest, AFullContextNamesItsSizeAndClear) {
  TerminalProgram program(chat("1000", {"--max_model_len", "60"}));
  program.type(std::string("hello") + kEnter);
  EXPECT_TRUE(program.sees("(cut, the context is full: 60 of 60 tokens; /clear forgets the conversation"))
      << program.output();
  program.type(std::string("more") + kEnter);
  EXPECT_TRUE(program.sees("but only 60 fit, including the answer (/clear forgets the conversation;"))
      << program.output();
  program.type(std::string("/clear") + kEnter + "hello" + kEnter);
  EXPECT_TRUE(program.sees("60 of 60 tokens"));
  EXPECT_TRUE(program.sees("> "));
  program.type(kCtrlD);
  EXPECT_EQ(program.wait(), 0);
}

struct Lines {
  std::vector<std::string> typed;
  std::string text;
  bool may_be_command = false;
};

TEST(MessageLines, EndWhereTheMessageDoes) {
  const std::vector<Lines> cases{
      {{"/quit"}, "/quit", true},
      {{"  plain  "}, "plain", true},
      {{"a\\", "b\\", "c"}, "a\nb\nc"},
      {{R"(1 & 2 \\)"}, R"(1 & 2 \\)", true},
      {{R"(""")", "  a", "", R"(b""")"}, "a\n\nb"},
      {{R"("""/quit""")"}, "/quit"},
      {{R"(""")", R"(a\)", R"(""")"}, "a\\"},
      {{R"(say """ now)"}, R"(say """ now)", true},
      {{"/* a\n   pasted comment */"}, "/* a\n   pasted comment */"},
      {{R"("""""")"}, ""},
  };
  for (const Lines& lines : cases) {
    MessageLines message;
    for (std::size_t i = 0; i < lines.typed.size(); ++i) {
      EXPECT_EQ(message.add(lines.typed[i]), i + 1 == lines.typed.size()) << lines.text << ", line " << i;
    }
    const TypedMessage typed = message.take();
    EXPECT_EQ(typed.text, lines.text);
    EXPECT_EQ(typed.may_be_command, lines.may_be_command) << lines.text;
    EXPECT_FALSE(message.has_begun());
  }
}

}  // namespace
}  // namespace hone::test
