// Tests the task lcb: reading the published test cases, comparing results, and hostile solutions.
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "eval/lcb/program_tests.h"
#include "eval/registry.h"
#include "support/paths.h"
#include "support/sandbox.h"

namespace hone {
namespace {

TEST(Lcb, reads_packed_test_cases) {
  const std::string text = read_file(test::fixture("eval/lcb.jsonl"));
  const ProgramTests sum = read_program_tests(parse_json(text.substr(0, text.find('\n')), "row 1"));
  EXPECT_EQ(sum.inputs, (std::vector<std::string>{"1 2\n", "10 -4\n", "0.5 0.25"}));
  EXPECT_EQ(sum.outputs, (std::vector<std::string>{"3\n", "6\n", "0.750"}));
  EXPECT_EQ(sum.function, "");
  const ProgramTests pairs = read_program_tests(parse_json(text.substr(text.find('\n') + 1), "row 2"));
  EXPECT_EQ(pairs.inputs, (std::vector<std::string>{"[1, 2]\n3", "[]\n0"}));
  EXPECT_EQ(pairs.function, "pairs");
}

TEST(Lcb, refuses_damaged_test_cases) {
  const Json good = {{"public_test_cases", Json::array()},
                     {"private_test_cases", R"([{"input": "1", "output": "2"}])"},
                     {"metadata", "{}"}};
  EXPECT_EQ(read_program_tests(good).outputs, std::vector<std::string>{"2"});
  for (const char* damaged : {"QUJD", "not base64!", "eJw=", "[1]", "[", R"([{"input": "1"}])", "[]"}) {
    Json row = good;
    row["private_test_cases"] = damaged;
    EXPECT_THROW((void)read_program_tests(row), Error) << damaged;
  }
  for (const std::string pickle : {"", "\x80\x04", "X\xff\xff\xff\x7f", "c__builtin__\neval\n",
                                   "\x8c\x05"
                                   "ab"}) {
    EXPECT_THROW((void)unpickled_text(pickle), Error);
  }
  EXPECT_EQ(unpickled_text(std::string_view("\x80\x04\x95\x06\0\0\0\0\0\0\0\x8c\x02hi\x94.", 17)), "hi");
}

TEST(Lcb, compares_lines_as_text_or_decimals) {
  EXPECT_TRUE(same_lines(" 1 \n2\n", "1\n2"));
  EXPECT_TRUE(same_lines("1.50 2e1", "1.5 20"));
  EXPECT_TRUE(same_lines("-0", "0"));
  EXPECT_TRUE(same_lines("Infinity", "inf"));
  EXPECT_FALSE(same_lines("1", "1\n1"));
  EXPECT_FALSE(same_lines("50000000000000000", "50000000000000001"));
  EXPECT_FALSE(same_lines("nan 1", "nan 1.0"));
  EXPECT_FALSE(same_lines("YES", "Yes"));
  EXPECT_FALSE(same_lines("1 2", "1"));
  EXPECT_FALSE(same_lines("1e", "1.0"));
}

TEST(Lcb, compares_values_as_python_does) {
  EXPECT_TRUE(same_value("i:1", 1));
  EXPECT_TRUE(same_value("i:1", 1.0));
  EXPECT_TRUE(same_value("i:1", true));
  EXPECT_TRUE(same_value("f:0.1", 0.1));
  EXPECT_TRUE(same_value("n", nullptr));
  EXPECT_TRUE(same_value(Json::parse(R"(["s:a", {"k": "i:2"}])"), Json::parse(R"(["a", {"k": 2}])")));
  EXPECT_FALSE(same_value("s:1", 1));
  EXPECT_FALSE(same_value("i:1", "1"));
  EXPECT_FALSE(same_value(false, false));
  EXPECT_FALSE(same_value(Json::parse(R"(["i:1"])"), Json::parse("[1, 2]")));
}

class LcbPrograms : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_SANDBOX();
    TaskRegistry registry;
    register_all_eval(registry);
    task_ = registry.make("lcb", {});
    problems_ = read_problems(task_, test::fixture("eval/lcb.jsonl"));
  }

  double score(std::size_t problem, const std::string& code) {
    return task_.judge(problems_.at(problem), "Here it is:\n```python\n" + code + "\n```\nDone.").score;
  }

  EvalTask task_;
  std::vector<EvalProblem> problems_;
};

TEST_F(LcbPrograms, judges_programs) {
  EXPECT_EQ(problems_[0].id, "sum");
  EXPECT_EQ(problems_[0].gold, "3 tests");
  EXPECT_TRUE(
      problems_[0].prompt.ends_with("it reads the inputs, runs the algorithm and writes output to STDOUT.\n"
                                    "```python\n# YOUR CODE HERE\n```\n\n"));
  EXPECT_EQ(score(0, "a, b = map(float, input().split())\nprint(a + b)"), 1.0);
  EXPECT_EQ(
      score(0, "def main():\n  print(sum(map(float, sys.stdin.read().split())))\nif __name__ == '__main__':\n  main()"),
      1.0);
  EXPECT_EQ(score(0, "print(sum(Decimal(w) for w in sys.stdin.readline().split()))\nfrom decimal import Decimal"), 1.0);
  EXPECT_EQ(score(0, "print(3)"), 0.0);
  EXPECT_EQ(score(0, "print(3"), 0.0);
  EXPECT_EQ(score(0, "import os\nos._exit(0)"), 0.0);
  EXPECT_EQ(task_.judge(problems_[0], "print(3)").extracted, "");
  EXPECT_EQ(task_.judge(problems_[0], "<think>\n```\n```\n</think> none").score, 0.0);
}

// A program that ends its sandbox, or tries to, fails its tests; the evaluation continues.
TEST_F(LcbPrograms, attacks_score_nothing) {
  EXPECT_EQ(score(0, "import os\nos.kill(0, 9)"), 0.0);
  EXPECT_EQ(score(0, "import os\nos.kill(-1, 9)"), 0.0);
  EXPECT_EQ(score(0, "import resource\nresource.prlimit(1, resource.RLIMIT_CPU, (0, 0))"), 0.0);
  EXPECT_EQ(score(0,
                  "import os\nfor n in range(3, 9):\n  try: os.write(n, b'{\"loaded\": true}\\n{\"out\": \"3\"}\\n')\n"
                  "  except OSError: pass\nos._exit(0)"),
            0.0);
  EXPECT_EQ(score(0, "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nsignal.pause()"), 0.0);
  EXPECT_EQ(score(0, "a, b = map(float, input().split())\nprint(a + b)"), 1.0);
}

TEST_F(LcbPrograms, judges_functions) {
  EXPECT_NE(problems_[1].prompt.find("def pairs"), std::string::npos);
  const std::string head = "class Solution:\n  def pairs(self, a: List[int], k: int) -> List[List[int]]:\n    ";
  EXPECT_EQ(score(1, head + "return [[x, k] for x in a]"), 1.0);
  EXPECT_EQ(score(1, head + "return tuple([x, k] for x in a)"), 1.0);
  EXPECT_EQ(score(1, head + "return [(x, k) for x in a]"), 0.0);
  EXPECT_EQ(score(1, head + "return [[x, k + 1] for x in a]"), 0.0);
  EXPECT_EQ(score(1, head + "return a.missing"), 0.0);
  EXPECT_EQ(score(1, "def other(a, k): return []"), 0.0);
}

}  // namespace
}  // namespace hone
