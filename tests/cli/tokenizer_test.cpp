#include <gtest/gtest.h>

#include <cstdio>

#include "cli/registry.h"
#include "core/files.h"
#include "support/golden.h"
#include "support/paths.h"

namespace hone {
namespace {

class TokenizerCommand : public testing::Test {
 protected:
  TokenizerCommand() { register_all_cli(registry_); }

  // Runs the command and checks its exit code. Returns the standard output, or the standard error if it must fail.
  std::string run(const std::vector<std::string>& words, int expected_code = 0) {
    std::vector<std::string> arguments{"tokenizer"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_command_line(registry_, arguments);
    std::fflush(stdout);
    const std::string out = testing::internal::GetCapturedStdout();
    error_ = testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, expected_code) << error_;
    return expected_code == 0 ? out : error_;
  }
  [[nodiscard]] const std::string& error() const { return error_; }  // standard error of the last command

  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

 private:
  CommandRegistry registry_;
  test::TemporaryDirectory folder_;
  std::string error_;
};

TEST_F(TokenizerCommand, TrainsEncodesDecodesAndCounts) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "the cat sat on the mat\n";
  write_file(path("a.txt"), text);
  EXPECT_EQ(run({"train", "--input", path("a.txt"), "--vocab_size", "270", "--special_tokens", "<|end|>", "<|pad|>",
                 "--eos_token", "<|end|>", "--output", path("t")}),
            "wrote " + path("t") + ": 270 tokens\n");
  const std::string ids = run({"encode", "--tokenizer", path("t"), "the cat<|end|>"});
  EXPECT_EQ(ids.substr(ids.size() - 3), " 0\n");
  std::vector<std::string> decode{"decode", "--tokenizer", path("t"), "--", ids.substr(0, ids.size() - 1)};
  EXPECT_EQ(run(decode), "the cat<|end|>\n");
  const std::string count = run({"count", "--tokenizer", path("t"), "--input", path("a.txt")});
  EXPECT_NE(count.find(" tokens, 1,150 bytes, "), std::string::npos) << count;
}

TEST_F(TokenizerCommand, RowsThatItCannotUseAreCounted) {
  write_file(path("a.jsonl"), "{\"text\": \"one\"}\n{\"text\": \"tw\n{\"text\": 3}\n{\"text\": \"four\"}\n");
  (void)run({"train", "--input", path("a.jsonl"), "--vocab_size", "258", "--output", path("t")});
  EXPECT_NE(error().find("2 of 4 rows left out: " + path("a.jsonl") + " line 2: not valid JSON"), std::string::npos)
      << error();
}

TEST_F(TokenizerCommand, MistakesGetOneLine) {
  EXPECT_EQ(
      run({}, 1),
      "hone: error: hone tokenizer: expected train, encode, decode or count, saw '' (for example hone tokenizer count "
      "--tokenizer DIR --input FILE)\n");
  EXPECT_EQ(run({"encode", "x"}, 1), "hone: error: --tokenizer: is not set (the folder of tokenizer.json)\n");
  EXPECT_EQ(run({"train"}, 1), "hone: error: --input: is not set (the files or folders to train on)\n");
  EXPECT_EQ(run({"train", "a.txt"}, 1),
            "hone: error: hone tokenizer train: unexpected argument 'a.txt' (name files with --input, a recipe with "
            "--config)\n");
  write_file(path("a.txt"), "some words here\n");
  run({"train", "--input", path("a.txt"), "--vocab_size", "260", "--output", path("t")});
  EXPECT_EQ(run({"decode", "--tokenizer", path("t"), "1", "260"}, 1),
            "hone: error: hone tokenizer decode: expected ids from 0 to 259, saw '260'\n");
  EXPECT_EQ(run({"decode", "--tokenizer", path("t"), "x"}, 1),
            "hone: error: hone tokenizer decode: expected ids from 0 to 259, saw 'x'\n");
}

TEST_F(TokenizerCommand, HelpIsFrozen) { test::expect_golden("cli/tokenizer_help.txt", run({"--help"})); }

}  // namespace
}  // namespace hone
