// Tests rewards that the user provides: what they receive, what they may answer, and the examples of docs/rewards.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "reward/user/user_reward.h"
#include "support/paths.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kPatient{36'000'000};  // time limit for programs that end on their own

class UserReward : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content, bool executable = true) const {
    const fs::path path = folder_.path() / name;
    std::ofstream(path) << content;
    if (executable) fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }
  std::string script(const std::string& body) const { return write("judge.sh", "#!/bin/sh\n" + body + "\n"); }
  [[nodiscard]] const fs::path& folder() const { return folder_.path(); }

 private:
  test::TemporaryDirectory folder_;
};

RewardScores scores(const std::string& path, int count = 3, milliseconds limit = kPatient) {
  static const Json row = {{"answer", "4\n2"}, {"level", 3}};
  std::vector<RewardInput> batch;
  for (int i = 0; i < count; ++i) {
    batch.push_back({.completion = i == 1 ? "say \"please\"\n\xff" : "no",
                     .row = &row,
                     .group = i,
                     .token_count = 7,
                     .ended = i != 2});
  }
  return make_user_reward(path, limit).score(batch);
}

std::string error_of(const std::string& path, milliseconds limit = kPatient) {
  try {
    (void)scores(path, 3, limit);
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    EXPECT_THAT(said, testing::HasSubstr(path));
    return said;
  }
  return "accepted";
}

// Returns the first block of this language in docs/rewards.md that contains `part`.
std::string example(const std::string& language, const std::string& part) {
  std::ifstream in(test::source_dir() / "docs/rewards.md");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const std::string fence = "```" + language + "\n";
  for (std::size_t at = text.find(fence); at != std::string::npos; at = text.find(fence, at + 1)) {
    const std::size_t start = at + fence.size();
    const std::string block = text.substr(start, text.find("```", start) - start);
    if (block.find(part) != std::string::npos) return block;
  }
  ADD_FAILURE() << "docs/rewards.md has no such example: " << part;
  return {};
}

TEST(IsOwnReward, a_path_has_a_slash) {
  EXPECT_TRUE(is_user_reward("./judge"));
  EXPECT_TRUE(is_user_reward("/a/judge.so"));
  EXPECT_FALSE(is_user_reward("accuracy"));
}

TEST_F(UserReward, answers_numbers_and_null_in_order) {
  const std::string path =
      script("while read -r line; do case $line in *please*) echo null;; *) echo ' -0.5e1 ';; esac; done");
  EXPECT_EQ(scores(path), (RewardScores{-5.0, std::nullopt, -5.0}));
  EXPECT_EQ(make_user_reward(path, kPatient).metric_name, "judge");
  EXPECT_EQ(scores(path, 0), RewardScores{});
}

TEST_F(UserReward, is_told_one_object_a_line) {
  const std::string kept = (folder() / "kept").string();
  (void)scores(script("while read -r line; do printf '%s\\n' \"$line\" >> " + kept + "; echo 1; done"));
  std::ifstream in(kept);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(parse_json(line, "kept"));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1]["completion"], "say \"please\"\n\xef\xbf\xbd");
  EXPECT_EQ(lines[1]["row"], (Json{{"answer", "4\n2"}, {"level", 3}}));
  EXPECT_EQ(lines[1]["group"], 1);
  EXPECT_EQ(lines[1]["token_count"], 7);
  EXPECT_EQ(lines[1]["ended"], true);
  EXPECT_EQ(lines[2]["ended"], false);
}

TEST_F(UserReward, many_lines_do_not_block_it) {
  const std::string path = script("cat >/dev/null; i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i + 1)); done");
  const RewardScores all = scores(path, 2000);
  ASSERT_EQ(all.size(), 2000u);
  EXPECT_EQ(all[1999], 1999.0);
}

TEST_F(UserReward, says_in_one_line_what_is_wrong) {
  const auto said = [&](const std::string& body, milliseconds limit = kPatient) {
    return error_of(script(body), limit);
  };
  EXPECT_THAT(said("echo 1; echo 2"), testing::HasSubstr("printed 2 lines for 3 completions"));
  EXPECT_THAT(said("echo 1; echo 2; echo 3; echo 4"), testing::HasSubstr("printed 4 lines for 3"));
  EXPECT_THAT(said("true"), testing::HasSubstr("printed 0 lines for 3"));
  EXPECT_THAT(said("echo 1; echo nan; echo 2"), testing::HasSubstr("line 2 is 'nan'"));
  EXPECT_THAT(said("echo 1; echo 2; echo inf"), testing::HasSubstr("line 3 is 'inf'"));
  EXPECT_THAT(said("echo 1; echo; echo 2"), testing::HasSubstr("line 2 is ''"));
  EXPECT_THAT(said("echo good; echo 2; echo 3"), testing::HasSubstr("line 1 is 'good'"));
  EXPECT_THAT(said("echo 1; echo 2; echo 3; echo no model >&2; exit 4"),
              testing::AllOf(testing::HasSubstr("status 4"), testing::HasSubstr("no model")));
  EXPECT_THAT(said("kill -SEGV $$"), testing::HasSubstr("signal 11"));
  EXPECT_THAT(said("yes"), testing::HasSubstr("printed too much"));
  EXPECT_THAT(said("sleep 100 & sleep 100", milliseconds(500)),
              testing::AllOf(testing::HasSubstr("did not end within 0.5 s"), testing::HasSubstr("reward_timeout")));
}

TEST_F(UserReward, a_file_that_is_none_is_refused_at_once) {
  EXPECT_THAT(error_of((folder() / "missing").string()), testing::HasSubstr("there is no such file"));
  EXPECT_THAT(error_of(write("plain.txt", "x", false)), testing::HasSubstr("is not executable"));
  EXPECT_THAT(error_of(write("wrong.so", "x")), testing::HasSubstr("status 1"));
}

TEST_F(UserReward, the_documented_script_works) {
  const std::string path = write("polite.py", example("python", "json.loads"));
  EXPECT_EQ(scores(path), (RewardScores{std::nullopt, 1.0, std::nullopt}));
}

class OwnObject : public UserReward {
 protected:
  // Runs the documented command in the test's folder.
  std::string build(const std::string& source) const {
    std::string command(trim(example("sh", "-shared")));
    command.replace(command.find("-I include"), 10, "-I '" + (test::source_dir() / "include").string() + "'");
    (void)write("shorter.c", source, false);
    EXPECT_EQ(std::system(("cd '" + folder().string() + "' && " + command).c_str()), 0);
    return (folder() / "shorter.so").string();
  }
};

TEST_F(OwnObject, the_documented_one_works) {
  const RewardScores all = scores(build(example("c", "hone_reward")));
  ASSERT_EQ(all.size(), 3u);
  ASSERT_TRUE(all[0] && all[1]);
  EXPECT_GT(*all[0], 0.99);
  EXPECT_LT(*all[1], *all[0]);
  EXPECT_EQ(all[2], std::nullopt);
}

TEST_F(OwnObject, what_it_prints_is_no_answer_and_its_crash_is_not_ours) {
  const std::string head = "#include \"hone_reward.h\"\n#include <stdio.h>\n#include <stdlib.h>\n";
  const auto object = [&](const std::string& body) {
    return build(head + "int hone_reward(const char* json, size_t size, double* score) { (void)json; (void)size; " +
                 body + " }");
  };
  EXPECT_EQ(scores(object("puts(\"7\"); *score = 2; return HONE_REWARD_SCORED;")), (RewardScores{2.0, 2.0, 2.0}));
  EXPECT_THAT(error_of(object("abort();")), testing::HasSubstr("signal 6"));
  EXPECT_THAT(error_of(object("*score = 0; return HONE_REWARD_FAILED;")), testing::HasSubstr("hone_reward returned 2"));
  EXPECT_THAT(error_of(object("*score = 0.0 / (size - size); return 0;")), testing::HasSubstr("nan"));
  EXPECT_THAT(error_of(build("int other(void) { return 0; }")), testing::HasSubstr("no function hone_reward"));
}

}  // namespace
}  // namespace hone
