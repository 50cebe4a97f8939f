// Tests of hone serve and hone generate over a tensor group: answers next to those of one process, ends, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "cli/program.h"
#include "cli/server_program.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "job/job_fixture.h"
#include "job/mixtures.h"
#include "support/paths.h"
#include "support/raw_client.h"

namespace hone::test {
namespace {

using ::testing::HasSubstr;

// Processor time that a process has used, in seconds.
double seconds_used(pid_t process) {
  std::ifstream in(text_of("/proc/", process, "/stat"));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  double ticks = 0;
  for (int i = 3; fields >> field && i <= 15; ++i)
    if (i >= 14) ticks += std::stod(field);  // utime and stime
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

class ServeGroup : public DividedJob {
 protected:
  ServeGroup()
      : DividedJob({.size_flag = "--tensor_parallel_size", .max_steps = 4, .eval_steps = 4},
                   {{"qwen3", SmallModel{.type = "qwen3"}.config()},
                    {"gpt2", SmallModel{.type = "gpt2"}.config()},
                    {"mixtral", mixtures().at("mixtral")},
                    {"deepseek_v3", mixtures().at("deepseek_v3")}}) {}

  [[nodiscard]] Flags serve(const std::string& model, int size, const Flags& more = {}) const {
    return joined({"serve", path(model).string(), "--port", "0", "--device", "cpu", "--max_model_len", "160",
                   "--kv_cache_memory_bytes", "4000000", "--tensor_parallel_size", std::to_string(size)},
                  more);
  }
};

// Requests to several endpoints, drawn and greedy, with grammars, penalties, stops and log-probabilities.
struct Call {
  std::string path;
  Json body;
};
std::vector<Call> calls() {
  std::vector<Call> all;
  for (int i = 0; i < 6; ++i) {
    const std::string text = text_of("What is ", i, " + ", 2 * i, "?");
    const Json messages = {{{"role", "user"}, {"content", text}}};
    all.push_back({"/v1/completions",
                   {{"prompt", text}, {"max_tokens", 30}, {"temperature", 0}, {"logprobs", 3}, {"echo", i == 2}}});
    all.push_back({"/v1/completions",
                   {{"prompt", text},
                    {"max_tokens", 20},
                    {"temperature", 0.9},
                    {"seed", i},
                    {"n", 3},
                    {"frequency_penalty", 1}}});
    all.push_back({"/v1/chat/completions",
                   {{"messages", messages}, {"max_tokens", 25}, {"temperature", 0}, {"stop", {"e", "1"}}}});
    all.push_back({"/v1/chat/completions",
                   {{"messages", messages},
                    {"max_tokens", 40},
                    {"seed", i},
                    {"structured_outputs", {{"regex", "[a-f]{3,9} [0-9]{2}"}}}}});
    all.push_back({"/v1/embeddings", {{"input", {text, "The answer"}}}});
  }
  return all;
}

// Answers of a server to all calls, sent by several clients concurrently: texts, and numbers.
struct Answers {
  std::vector<std::string> texts;
  std::vector<double> numbers;
};
Answers answers_of(std::uint16_t port) {
  const std::vector<Call> all = calls();
  std::vector<RawResponse> responses(all.size());
  constexpr std::size_t kClients = 6;
  std::vector<std::thread> clients;
  for (std::size_t client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      for (std::size_t i = client; i < all.size(); i += kClients)
        responses[i] = fetch(port, "POST", all[i].path, all[i].body.dump());
    });
  }
  for (std::thread& client : clients) client.join();
  Answers answers;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(responses[i].status, 200) << all[i].body << responses[i].body;
    if (responses[i].status != 200) continue;
    const Json answer = Json::parse(responses[i].body);
    if (all[i].path == "/v1/embeddings") {
      for (const Json& one : answer["data"])
        for (const Json& value : one["embedding"]) answers.numbers.push_back(value.get<double>());
      continue;
    }
    for (const Json& choice : answer["choices"]) {
      answers.texts.push_back(choice.contains("text") ? choice["text"].get<std::string>()
                                                      : choice["message"]["content"].get<std::string>());
      answers.texts.back() += choice["finish_reason"].get<std::string>();
      if (!choice.contains("logprobs") || choice["logprobs"].is_null()) continue;
      for (const Json& value : choice["logprobs"]["token_logprobs"])
        if (value.is_number()) answers.numbers.push_back(value.get<double>());
    }
  }
  return answers;
}

TEST_F(ServeGroup, AnswersConcurrentClientsAsOneProcessDoes) {
  for (const std::string model : {"qwen3", "gpt2", "deepseek_v3"}) {
    run(model, model, 1, 1);
    Answers one;
    for (const int size : {1, 2, 4}) {
      Flags more{"--embeddings", "mean", "--max_num_seqs", "5"};
      if (model == "deepseek_v3" && size == 2) more = joined(more, {"--latent_kv_cache", "true"});
      ServerProgram server(serve(model, size, size == 4 ? joined(more, {"--num_speculative_tokens", "2"}) : more));
      ASSERT_NE(server.port(), 0) << server.log();
      const Answers answers = answers_of(server.port());
      if (size == 1) one = answers;
      EXPECT_GE(answers.texts.size(), 36u);
      EXPECT_GT(answers.numbers.size(), 400u);
      EXPECT_EQ(answers.texts, one.texts) << model << " on " << size;
      ASSERT_EQ(answers.numbers.size(), one.numbers.size());
      for (std::size_t i = 0; i < one.numbers.size(); ++i) EXPECT_NEAR(answers.numbers[i], one.numbers[i], 1e-4);
      // A group answers the same again, under another load.
      EXPECT_EQ(answers_of(server.port()).texts, answers.texts) << model << " on " << size;
      server.signal(SIGTERM);
      EXPECT_EQ(server.wait(), 0) << server.log();
    }
  }
}

TEST_F(ServeGroup, GenerateWritesWhatOneProcessWrites) {
  run("mixtral", "model", 1, 1);
  std::string one;
  for (const char* size : {"1", "2", "4"}) {
    const std::string output = path(text_of("generated ", size)).string();
    finish({"generate",
            "--model_name_or_path",
            path("model").string(),
            "--dataset_name",
            path("data/prompts.jsonl").string(),
            "--dataset_prompt_column",
            "problem",
            "--dataset_end_index",
            "9",
            "--num_generations",
            "2",
            "--max_new_tokens",
            "30",
            "--require_end",
            "false",
            "--device",
            "cpu",
            "--tensor_parallel_size",
            size,
            "--output_dir",
            output});
    const std::string data = read_file(std::filesystem::path(output) / "generations.jsonl");
    if (one.empty()) one = data;
    EXPECT_GT(data.size(), 500u);
    EXPECT_EQ(data, one) << size;
  }
}

TEST_F(ServeGroup, TakesOtherWeightsAndSleeps) {
  run("mixtral", "model", 1, 1);
  run("mixtral", "other", 1, 1, {"--seed", "5"});
  const Json body{{"prompt", "What is 1 + 2?"}, {"max_tokens", 20}, {"temperature", 0}};
  const auto text_from = [&](const ServerProgram& server) {
    const RawResponse response = fetch(server.port(), "POST", "/v1/completions", body.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body)["choices"][0]["text"].get<std::string>();
  };
  ServerProgram other(serve("other", 1));
  const std::string expected = text_from(other);
  ServerProgram server(serve("model", 2, {"--allow_weight_updates", "true"}));
  ASSERT_NE(server.port(), 0) << server.log();
  const std::string before = text_from(server);
  const auto post = [&](const std::string& target, const Json& content = Json::object()) {
    return fetch(server.port(), "POST", target, content.dump()).status;
  };
  EXPECT_EQ(post("/sleep?level=1"), 200);
  EXPECT_EQ(post("/wake_up"), 200);
  EXPECT_EQ(text_from(server), before);
  EXPECT_EQ(post("/update_weights_from_disk", {{"model_path", path("none").string()}}), 400);
  EXPECT_EQ(text_from(server), before);
  EXPECT_EQ(post("/update_weights_from_disk", {{"model_path", path("other").string()}}), 200);
  EXPECT_EQ(text_from(server), expected);
  EXPECT_NE(before, expected);
  server.signal(SIGINT);
  EXPECT_EQ(server.wait(), 0) << server.log();
}

// Rounding to FP8 enlarges differences of rounding, so that a group may have other tokens than one process.
TEST_F(ServeGroup, KeepsKeysAndValuesInFp8) {
  run("qwen3", "model", 1, 1);
  ServerProgram server(serve("model", 2, {"--kv_cache_dtype", "fp8", "--embeddings", "mean"}));
  ASSERT_NE(server.port(), 0) << server.log();
  const Answers first = answers_of(server.port());
  EXPECT_GE(first.texts.size(), 36u);
  EXPECT_EQ(answers_of(server.port()).texts, first.texts);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.log();
}

TEST_F(ServeGroup, SigtermFinishesRequestsAndLeavesNoProcess) {
  run("qwen3", "model", 1, 1);
  ServerProgram server(serve("model", 4));
  ASSERT_NE(server.port(), 0) << server.log();
  const std::vector<pid_t> ranks = ranks_of(server.id());
  ASSERT_EQ(ranks.size(), 4u);
  RawClient client(server.port());
  client.send(
      http_request("POST", "/v1/completions",
                   Json{{"prompt", "What"}, {"max_tokens", 100}, {"stream", true}, {"ignore_eos", true}}.dump()));
  ASSERT_TRUE(client.wait_for("data: "));
  server.signal(SIGTERM);
  EXPECT_THAT(client.rest(), HasSubstr("data: [DONE]"));
  EXPECT_EQ(server.wait(), 0) << server.log();
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0);
}

// The processes of an idle server wait without using the processor, longer than a rank may take to answer.
TEST_F(ServeGroup, WaitsForRequestsAtRest) {
  run("qwen3", "model", 1, 1);
  ServerProgram server(serve("model", 2, {"--ddp_timeout", "15"}));
  ASSERT_NE(server.port(), 0) << server.log();
  const Json body{{"prompt", "What"}, {"max_tokens", 8}};
  EXPECT_EQ(fetch(server.port(), "POST", "/v1/completions", body.dump()).status, 200);
  std::vector<double> before;
  for (const pid_t rank : ranks_of(server.id())) before.push_back(seconds_used(rank));
  std::this_thread::sleep_for(std::chrono::seconds(17));
  std::size_t r = 0;
  for (const pid_t rank : ranks_of(server.id())) EXPECT_LT(seconds_used(rank) - before.at(r++), 5.0);
  EXPECT_EQ(r, 2u);
  EXPECT_EQ(fetch(server.port(), "POST", "/v1/completions", body.dump()).status, 200) << server.log();
}

TEST_F(ServeGroup, AKilledRankEndsTheServerWithOneLine) {
  run("qwen3", "model", 1, 1);
  for (const std::size_t victim : {std::size_t{2}, std::size_t{0}}) {
    for (const bool busy : {false, true}) {
      ServerProgram server(serve("model", 4));
      ASSERT_NE(server.port(), 0) << server.log();
      const std::vector<pid_t> ranks = ranks_of(server.id());
      ASSERT_EQ(ranks.size(), 4u);
      RawClient client(server.port());
      if (busy) {
        client.send(http_request(
            "POST", "/v1/completions",
            Json{{"prompt", "What"}, {"max_tokens", 150}, {"n", 8}, {"stream", true}, {"ignore_eos", true}}.dump()));
        ASSERT_TRUE(client.wait_for("data: "));
      }
      ::kill(ranks[victim], SIGKILL);
      EXPECT_NE(server.wait(), 0);
      const std::string log = server.log();
      EXPECT_THAT(log, HasSubstr(text_of("hone: error: rank ", victim, " ("))) << log;
      EXPECT_THAT(log, HasSubstr("has ended; the job ends")) << log;
      std::size_t lines = 0;
      for (const std::string& line : split(log, '\n')) lines += line.find("hone: error") != std::string::npos ? 1 : 0;
      EXPECT_EQ(lines, 1u) << log;
      for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0);
    }
  }
}

TEST_F(ServeGroup, ARankThatHangsEndsTheServer) {
  run("qwen3", "model", 1, 1);
  ServerProgram server(serve("model", 2, {"--ddp_timeout", "15"}));
  ASSERT_NE(server.port(), 0) << server.log();
  const std::vector<pid_t> ranks = ranks_of(server.id());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGSTOP);
  const RawResponse response =
      fetch(server.port(), "POST", "/v1/completions", Json{{"prompt", "What"}, {"max_tokens", 8}}.dump());
  EXPECT_EQ(response.status, 500) << response.body;
  EXPECT_NE(server.wait(), 0);
  EXPECT_THAT(server.log(), HasSubstr("hone: error: rank 1 ("));
  EXPECT_THAT(server.log(), HasSubstr("has not answered for 15 s"));
}

TEST_F(ServeGroup, WhatCannotBeDividedIsRefused) {
  run("qwen3", "model", 1, 1);
  EXPECT_THAT(refusal(serve("model", 3)), HasSubstr("tensor_parallel_size: is 3, but num_attention_heads is 4"));
  EXPECT_THAT(refusal(serve("model", 2, {"--max_loras", "1"})),
              HasSubstr("tensor_parallel_size: is 2, but the slots of adapters are not divided"));
  EXPECT_THAT(
      refusal(serve("model", 2, {"--quantization", "fp8"})),
      HasSubstr("quantization: fp8 has a scale for 128 x 128 numbers, but processes have 16 of the 32 rows of"));
  const std::string mixture = (fixture("models") / "qwen3_moe").string();
  EXPECT_THAT(refusal({"serve", mixture, "--device", "cpu", "--tensor_parallel_size", "4"}),
              HasSubstr("tensor_parallel_size: is 4, but a layer has 6 experts"));
  EXPECT_THAT(refusal({"chat", "--server", "http://127.0.0.1:1", "--tensor_parallel_size", "2"}),
              HasSubstr("tensor_parallel_size: has no effect with --server"));
}

}  // namespace
}  // namespace hone::test
