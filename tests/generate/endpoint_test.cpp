// Tests `hone generate` with an OpenAI-compatible server instead of the engine.
#include "generate/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "endpoint/client.h"
#include "generate/small_endpoint.h"
#include "support/paths.h"

namespace hone {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class EndpointTest : public testing::Test {
 protected:
  EndpointTest() {
    ::unsetenv("HONE_TEST_KEY");
    options.model_name_or_path = "Org/Model";
    options.endpoint = server.url();
    options.endpoint_key_variable = "HONE_TEST_KEY";
    options.endpoint_retries = 3;
    options.dataset_name = (folder.path() / "prompts.jsonl").string();
    options.output_dir = (folder.path() / "out").string();
    options.system_prompt = "Be brief.";
    options.num_generations = 3;
    options.max_num_seqs = 4;
    write_prompts({"one", "two", "three", "four", "five"});
  }
  ~EndpointTest() override { ::unsetenv("HONE_TEST_KEY"); }

  void write_prompts(const std::vector<std::string>& prompts) {
    std::string text;
    for (const std::string& prompt : prompts) text += Json{{"prompt", prompt}, {"source", "test"}}.dump() + "\n";
    write_file(options.dataset_name, text);
  }

  GenerateCounts run() {
    check_options(options, {});
    return generate(options);
  }
  [[nodiscard]] std::string error_of() {
    try {
      (void)run();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  [[nodiscard]] std::vector<Json> lines(const std::string& name) const {
    std::istringstream text(read_file(folder.path() / "out" / name));
    std::vector<Json> rows;
    for (std::string line; std::getline(text, line);) rows.push_back(parse_json(line, name));
    return rows;
  }
  [[nodiscard]] std::string data() const { return read_file(folder.path() / "out" / "data.jsonl"); }

  test::TemporaryDirectory folder;
  test::SmallEndpoint server;
  GenerateOptions options;
};

TEST_F(EndpointTest, EachCompletionIsARequestWithItsSeed) {
  options.top_k = 20;
  options.max_new_tokens = 99;
  const GenerateCounts counts = run();
  EXPECT_EQ(counts.completions, 15);
  EXPECT_EQ(counts.kept, 15);
  std::set<std::string> seeds;
  for (const Json& request : server.requests()) {
    seeds.insert(request["seed"].dump());
    EXPECT_LE(request["seed"].get<std::uint64_t>(), 0x7FFF'FFFFu);
    EXPECT_EQ(request["model"], "Org/Model");
    EXPECT_EQ(request["messages"][0], Json({{"role", "system"}, {"content", "Be brief."}}));
    EXPECT_EQ(request["messages"][1]["role"], "user");
    EXPECT_EQ(request["temperature"], 0.6);
    EXPECT_EQ(request["top_p"], 0.95);
    EXPECT_EQ(request["top_k"], 20);
    EXPECT_FALSE(request.contains("min_p"));
    EXPECT_EQ(request["max_tokens"], 99);
  }
  EXPECT_EQ(seeds.size(), 15u);
  const std::vector<Json> rows = lines("data.jsonl");
  ASSERT_EQ(rows.size(), 15u);
  EXPECT_EQ(rows[0]["messages"].size(), 3u);
  EXPECT_THAT(rows[0]["messages"][2]["content"].get<std::string>(),
              AllOf(testing::StartsWith("Org/Model "), testing::EndsWith(": one")));
  EXPECT_EQ(rows[14]["source"], "test");
  EXPECT_EQ(lines("generations.jsonl")[0]["completion_tokens"], Json({7, 7, 7}));
}

TEST_F(EndpointTest, AsksForSoManyAtOnceAndNoMore) {
  server.gathers = 4;
  (void)run();
  EXPECT_EQ(server.most_at_once(), 4);
}

TEST_F(EndpointTest, WhatFailsInPassingIsAskedAgain) {
  const std::string expected = (run(), data());
  options.overwrite_output_dir = true;
  const std::size_t before = server.requests().size();
  server.busy = 2;
  server.cut = 2;
  server.nonsense = 2;
  (void)run();
  EXPECT_EQ(server.requests().size(), before + 15 + 6);
  EXPECT_EQ(data(), expected);
}

TEST_F(EndpointTest, ConnectionsAreUsedAgain) {
  EXPECT_EQ(run().kept, 15);
  EXPECT_LE(server.connections(), 4) << "one connection per concurrent request";
  const int before = server.connections();
  options.overwrite_output_dir = true;
  EXPECT_EQ(run().kept, 15);
  EXPECT_LE(server.connections(), 4) << "includes the connections of the run before, " << before;
}

TEST_F(EndpointTest, AServerMayCloseEachConnection) {
  server.closes = true;
  options.max_num_seqs = 15;
  EXPECT_EQ(run().kept, 15);
  EXPECT_EQ(server.connections(), 15);
}

// All requests must be sent although none of them has been answered.
TEST_F(EndpointTest, AServerMayWaitForAllRequests) {
  options.num_generations = 13;
  options.max_num_seqs = 65;
  server.gathers = 65;
  EXPECT_EQ(run().kept, 65);
  EXPECT_EQ(server.most_at_once(), 65);
}

TEST_F(EndpointTest, TheFirstFailureIsSaid) {
  server.busy = 1;
  options.max_num_seqs = 1;
  testing::internal::CaptureStderr();
  EXPECT_EQ(run().kept, 15);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("/v1/chat/completions: answers 429: slow down; try 1 of 4, the next in 0.25 s\n"));
  EXPECT_THAT(said, HasSubstr("/v1/chat/completions: answers again, after 2 tries\n"));
}

TEST(FailureNotices, AreALineNowAndThen) {
  FailureNotices notices;
  const std::string url = "http://a/v1";
  const std::string problem = "gives no answer";
  const std::chrono::steady_clock::time_point start{std::chrono::hours(1)};
  const auto says = [&](std::int64_t seconds) {
    return notices.say({.url = url, .problem = problem, .tries = 3}, start + std::chrono::seconds(seconds),
                       std::chrono::seconds(30));
  };
  testing::internal::CaptureStderr();
  EXPECT_TRUE(says(0)) << "the first one is reported immediately";
  EXPECT_FALSE(says(0));
  EXPECT_FALSE(says(4));
  EXPECT_TRUE(says(5));
  EXPECT_FALSE(says(9));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "hone: warning: http://a/v1: gives no answer; try 3, the next in 30 s\n"
            "hone: warning: http://a/v1: gives no answer; try 3, the next in 30 s\n");
}

TEST_F(EndpointTest, WhoIsTooSlowIsAskedAgain) {
  options.endpoint_timeout = 2;
  options.endpoint_retries = 1000;  // on a busy machine other answers may also be late
  options.num_generations = 1;
  options.max_num_seqs = 1;
  server.slow = 1;
  EXPECT_EQ(run().kept, 5);
  EXPECT_GE(server.requests().size(), 6u);
}

TEST_F(EndpointTest, AServerMaySayWhenToComeAgain) {
  server.busy = 1;
  server.retry_after = "1";
  options.num_generations = 1;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(run().kept, 5);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1000));
}

TEST_F(EndpointTest, GoesOnWhereItWasStopped) {
  const std::string expected = (run(), data());
  options.overwrite_output_dir = true;
  options.max_num_seqs = 1;
  options.endpoint_retries = 0;
  const std::size_t before = server.requests().size();
  server.stops_after = static_cast<int>(before) + 7;
  EXPECT_THAT(error_of(), HasSubstr("answers 500: out of order"));
  EXPECT_EQ(lines("generations.jsonl").size(), 2u) << "whole prompts only";
  options.overwrite_output_dir = false;
  server.stops_after = -1;
  (void)run();
  EXPECT_EQ(data(), expected);
  EXPECT_EQ(server.requests().size(), before + 8 + 9) << "two prompts were done";
  (void)run();
  EXPECT_EQ(server.requests().size(), before + 8 + 9);
}

TEST_F(EndpointTest, RowsThatCannotBeReadAreCountedAndLeftOut) {
  write_file(options.dataset_name, "{\"prompt\": \"one\"}\n{\"prompt\": \"tw\n{\"prompt\": \"three\"}\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(run().kept, 6);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("1 of 3 rows left out: " + options.dataset_name + " line 2: not valid JSON"));
}

TEST_F(EndpointTest, WhatIsComparedWithBenchmarksIsCounted) {
  const std::string first = (folder.path() / "first.jsonl").string();
  const std::string second = (folder.path() / "second.jsonl").string();
  write_file(first, R"({"problem": "Two"})"
                    "\n"
                    R"({"problem": "another"})"
                    "\n");
  write_file(second, R"({"problem": "TWO"})"
                     "\n"
                     R"({"problem": "four"})"
                     "\n");
  options.decontaminate = {first, second};
  options.num_generations = 1;
  testing::internal::CaptureStderr();
  const GenerateCounts counts = run();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("decontaminate: 5 prompts checked, 2 removed: 1 for " + first + " (2 prompts), 2 for " +
                        second + " (2 prompts)\n"));
  EXPECT_EQ(counts.contaminated, 2);
  EXPECT_EQ(counts.kept, 3);
  options.decontaminate = {first};
  options.overwrite_output_dir = true;
  write_prompts({"one"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(run().kept, 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("decontaminate: 1 prompts checked, 0 removed: 0 for " + first))
      << "also reported if nothing was found";
}

TEST_F(EndpointTest, PromptsThatAreRefusedAreCountedAndLeftOut) {
  write_prompts({"one", "a forbidden one", "three"});
  testing::internal::CaptureStderr();
  const GenerateCounts counts = run();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("1 of 3 prompts were refused and are left out; the first: prompt"));
  EXPECT_EQ(counts.refused, 1);
  EXPECT_EQ(counts.kept, 6);
  EXPECT_EQ(lines("generations.jsonl").size(), 2u);
  options.overwrite_output_dir = true;
  write_prompts({"forbidden", "a forbidden one"});
  EXPECT_THAT(error_of(), HasSubstr("the endpoint answers 400: this prompt is forbidden"));
}

TEST_F(EndpointTest, PromptsWithoutAReadableAnswerAreLeftOut) {
  options.endpoint_retries = 1;
  options.max_num_seqs = 1;
  options.num_generations = 1;
  server.nonsense = 2;  // for each attempt of the first prompt
  testing::internal::CaptureStderr();
  const GenerateCounts counts = run();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the answer is not a valid chat completion"));
  EXPECT_EQ(counts.refused, 1);
  EXPECT_EQ(counts.kept, 4);
  options.overwrite_output_dir = true;
  server.nonsense = 1000;
  EXPECT_THAT(error_of(), HasSubstr("refused the first"));
}

TEST_F(EndpointTest, TheKeyIsTheEnvironments) {
  server.needed_key = "secret";
  EXPECT_THAT(error_of(), AllOf(HasSubstr("/v1/chat/completions: answers 401: Incorrect API key provided"),
                                HasSubstr("(set HONE_TEST_KEY)")));
  ::setenv("HONE_TEST_KEY", "secret", 1);
  EXPECT_EQ(run().kept, 15);
  EXPECT_EQ(read_file(folder.path() / "out" / "settings.json").find("secret"), std::string::npos);
}

TEST_F(EndpointTest, ReasoningIsPutBeforeTheContent) {
  const auto text_of_message = [&](const Json& message) {
    server.message = message.dump();
    options.overwrite_output_dir = true;
    options.num_generations = 1;
    (void)run();
    return lines("data.jsonl").at(0)["messages"].back()["content"].get<std::string>();
  };
  for (const char* name : {"reasoning_content", "reasoning"}) {
    EXPECT_EQ(text_of_message({{"content", "\n\n4"}, {name, "2 and 2\n"}}), "<think>\n2 and 2\n</think>\n\n4");
  }
  EXPECT_EQ(text_of_message({{"content", "2 and 2</think>4"}}), "<think>\n2 and 2</think>4");
  EXPECT_EQ(text_of_message({{"content", "<think>2</think>4"}}), "<think>2</think>4");
  EXPECT_EQ(text_of_message({{"content", "4"}, {"reasoning_content", nullptr}}), "4");
}

TEST_F(EndpointTest, TokensThatNobodyCountsAreNone) {
  server.counts_tokens = false;
  EXPECT_EQ(run().kept, 15);
  EXPECT_EQ(lines("generations.jsonl")[0]["completion_tokens"], Json({0, 0, 0}));
}

TEST_F(EndpointTest, MistakesAreNamed) {
  options.endpoint = "localhost:8000";
  EXPECT_THAT(error_of(), HasSubstr("endpoint: 'localhost:8000' is not an http(s) URL"));
  options.endpoint = server.url() + "/other";
  EXPECT_THAT(error_of(), HasSubstr("answers 404: no such path (is 'Org/Model' served there?)"));
  options.endpoint = "http://127.0.0.1:1";
  options.endpoint_retries = 1;
  EXPECT_THAT(error_of(), AllOf(HasSubstr("gives no answer"), HasSubstr("tried 2 times")));
  options.endpoint = server.url();
  options.chat_template = "{{ messages }}";
  EXPECT_THAT(error_of(), HasSubstr("an endpoint renders prompts with the server's template"));
  options.chat_template.clear();
  write_file(
      options.dataset_name,
      Json{{"prompt", {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "b"}}}}}.dump());
  EXPECT_THAT(error_of(), HasSubstr("an endpoint cannot continue a message of the assistant"));
  options.model_name_or_path.clear();
  EXPECT_THAT(error_of(), HasSubstr("the model's name on the server"));
}

TEST(EndpointUrl, MayLackTheVersion) {
  EXPECT_EQ(completions_url("http://a:8000"), "http://a:8000/v1/chat/completions");
  EXPECT_EQ(completions_url("http://a:8000/"), "http://a:8000/v1/chat/completions");
  EXPECT_EQ(completions_url("https://a/v1/"), "https://a/v1/chat/completions");
  EXPECT_EQ(completions_url("https://a/api/v3"), "https://a/api/v3/chat/completions");
  EXPECT_EQ(completions_url("HTTP://A:8000"), "http://a:8000/v1/chat/completions");
  for (const char* wrong : {"", "a", "ftp://a", "http://", "https:///", "http://a b", "http://a:b"}) {
    EXPECT_THROW((void)completions_url(wrong), Error) << wrong;
  }
}

TEST(EndpointUrl, OfTheServerLacksTheVersion) {
  EXPECT_EQ(server_url("http://a:8000", "key"), "http://a:8000");
  EXPECT_EQ(server_url("http://a:8000/v1/", "key"), "http://a:8000");
  EXPECT_EQ(server_url("https://a/api/v1", "key"), "https://a/api");
  EXPECT_EQ(server_url("http://v1/", "key"), "http://v1");
  EXPECT_THROW((void)server_url("a:8000/v1", "key"), Error);
}

}  // namespace
}  // namespace hone
