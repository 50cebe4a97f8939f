// Tests hone serve as a program: its answers are those of hone generate, its shutdown, and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "cli/program.h"
#include "cli/server_program.h"
#include "cli/small_model.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/certificate.h"
#include "support/paths.h"
#include "support/raw_client.h"
#include "support/tls_client.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

using ServeTest = SmallModelTest;

TEST_F(ServeTest, AnswersAsGenerateDoesAndEndsWithSigterm) {
  write_file(at("questions.jsonl"), "{\"prompt\": \"What is 1 + 2?\"}\n{\"prompt\": \"The answer\"}\n");
  const Ended generated = run_program({"generate", "--model_name_or_path", at("model"), "--dataset_name",
                                       at("questions.jsonl"), "--temperature", "0", "--max_new_tokens", "40",
                                       "--require_end", "false", "--output_dir", at("generated"), "--device", "cpu"});
  ASSERT_EQ(generated.code, 0) << generated.output;
  ServerProgram server(serve({"--served_model_name", "mini", "--max_model_len", "200"}));
  ASSERT_NE(server.port(), 0) << server.log();
  for (const std::string& line : split(read_file(at("generated/generations.jsonl")), '\n')) {
    if (line.empty()) continue;
    const Json row = Json::parse(line);
    const Json body{{"model", "mini"},
                    {"messages", {{{"role", "user"}, {"content", row["prompt"]}}}},
                    {"max_tokens", 40},
                    {"temperature", 0}};
    const RawResponse response = fetch(server.port(), "POST", "/v1/chat/completions", body.dump());
    ASSERT_EQ(response.status, 200) << response.body;
    const Json choice = Json::parse(response.body)["choices"][0];
    EXPECT_EQ(choice["message"]["content"], row["generations"][0]);
    EXPECT_EQ(choice["finish_reason"], row["finish_reasons"][0]);
  }
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.log();
  EXPECT_THAT(server.log(), HasSubstr("POST /v1/chat/completions 200 "));
  EXPECT_THAT(server.log(), HasSubstr("shutting down"));
}

// Log-probabilities of prompts and completions in generations.jsonl are those of a server's echo.
TEST_F(ServeTest, GenerateWritesTheLogProbabilitiesThatAnEchoHas) {
  write_file(at("scored.jsonl"), "{\"prompt\": \"What is 1 + 2?\"}\n{\"prompt\": \"The answer\"}\n");
  const std::vector<std::string> arguments{"generate",
                                           "--model_name_or_path",
                                           at("model"),
                                           "--dataset_name",
                                           at("scored.jsonl"),
                                           "--temperature",
                                           "0",
                                           "--top_p",
                                           "1",
                                           "--max_new_tokens",
                                           "12",
                                           "--num_generations",
                                           "2",
                                           "--require_end",
                                           "false",
                                           "--logprobs",
                                           "2",
                                           "--device",
                                           "cpu",
                                           "--output_dir",
                                           at("scored"),
                                           "--prompt_logprobs",
                                           "1"};
  const Ended generated = run_program(arguments);
  ASSERT_EQ(generated.code, 0) << generated.output;
  ServerProgram server(serve({"--served_model_name", "mini", "--max_model_len", "200"}));
  ASSERT_NE(server.port(), 0) << server.log();
  int rows = 0;
  for (const std::string& line : split(read_file(at("scored/generations.jsonl")), '\n')) {
    if (line.empty()) continue;
    ++rows;
    const Json row = Json::parse(line);
    const Json body{
        {"model", "mini"}, {"prompt", row["prompt_ids"]}, {"max_tokens", 12}, {"temperature", 0}, {"echo", true},
        {"logprobs", 2},   {"return_token_ids", true}};
    const RawResponse response = fetch(server.port(), "POST", "/v1/completions", body.dump());
    ASSERT_EQ(response.status, 200) << response.body;
    const Json choice = Json::parse(response.body)["choices"][0];
    const Json& echoed = choice["logprobs"]["token_logprobs"];
    Json expected = row["prompt_logprobs"];
    ASSERT_EQ(expected.size(), row["prompt_ids"].size());
    EXPECT_TRUE(expected[0].is_null());
    ASSERT_EQ(row["completion_ids"].size(), 2U);
    EXPECT_EQ(row["completion_ids"][1], row["completion_ids"][0]) << "greedy";
    EXPECT_EQ(row["completion_ids"][0], choice["token_ids"]);
    for (const Json& logp : row["completion_logprobs"][0]) expected.push_back(logp);
    ASSERT_EQ(echoed.size(), expected.size());
    for (std::size_t i = 1; i < echoed.size(); ++i)
      EXPECT_EQ(echoed[i].get<float>(), expected[i].get<float>()) << "token " << i;
    ASSERT_EQ(row["completion_top_logprobs"][0].size(), row["completion_ids"][0].size());
    const std::string drawn = std::to_string(row["completion_ids"][0][0].get<int>());
    EXPECT_EQ(row["completion_top_logprobs"][0][0].size(), 2U);
    EXPECT_EQ(row["completion_top_logprobs"][0][0].at(drawn), row["completion_logprobs"][0][0]);
    EXPECT_EQ(row["prompt_top_logprobs"].size(), row["prompt_ids"].size());
    EXPECT_EQ(row["prompt_top_logprobs"][1].size(), 1U);
  }
  EXPECT_EQ(rows, 2);
  std::vector<std::string> other = arguments;
  other.back() = "2";
  const Ended refused = run_program(other);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("prompt_logprobs: is 2, but "));
  // Data that was generated so has columns of the same names, which do not stay.
  for (const auto& [from, to] : {std::pair("scored.jsonl", "scored/generations.jsonl"), std::pair("scored", "again")}) {
    *std::ranges::find(other, at(from)) = at(to);
  }
  other.back() = "0";
  const Ended again = run_program(other);
  ASSERT_EQ(again.code, 0) << again.output;
  const Json row = Json::parse(split(read_file(at("again/generations.jsonl")), '\n')[0]);
  EXPECT_EQ(row["completion_ids"].size(), 2U);
  EXPECT_EQ(row["completion_top_logprobs"].size(), 2U);
}

// A streamed request of `n` completions with `max_tokens` tokens each.
std::string stream_request(std::int64_t n, std::int64_t max_tokens) {
  return http_request("POST", "/v1/completions",
                      Json{{"prompt", "What is"},
                           {"n", n},
                           {"max_tokens", max_tokens},
                           {"ignore_eos", true},
                           {"seed", 1},
                           {"stream", true}}
                          .dump());
}

// Waits until so many completions have reached the engine's queue.
void wait_until_queued(const ServerProgram& server, std::int64_t completions) {
  constexpr std::string_view kQueued = "\nvllm:request_params_max_tokens_count{";
  for (;;) {
    const std::string metrics = fetch(server.port(), "GET", "/metrics").body;
    const std::size_t at = metrics.find(kQueued);
    if (at != std::string::npos && std::stoll(metrics.substr(metrics.find("} ", at) + 2)) >= completions) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TEST_F(ServeTest, SigtermUnderLoadFinishesEveryStream) {
  constexpr std::int64_t kStreams = 24;
  ServerProgram server(serve({"--max_num_seqs", "2", "--shutdown_timeout", "3600", "--access_log", "false"}));
  ASSERT_NE(server.port(), 0) << server.log();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::int64_t i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(stream_request(1, 200));
  }
  RawClient idle(server.port());
  idle.send(http_request("GET", "/health"));
  EXPECT_EQ(idle.receive().status, 200);
  wait_until_queued(server, kStreams);
  server.signal(SIGTERM);
  EXPECT_EQ(idle.rest(), "") << "a connection without a request is closed";
  for (const auto& client : clients) {
    const RawResponse response = client->receive();
    ASSERT_EQ(response.status, 200);
    EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n")) << response.body;
    EXPECT_EQ(response.body.find("shuts down"), std::string::npos);
    EXPECT_EQ(client->rest(), "") << "the connection is closed after its answer";
  }
  EXPECT_EQ(server.wait(), 0) << server.log();
}

// 64 requests of 32 completions, one at a time, would take longer than any test.
TEST_F(ServeTest, SigtermUnderLoadGivesTheRestAReason) {
  constexpr std::int64_t kRequests = 64;
  constexpr std::int64_t kCompletions = 32;
  ServerProgram server(serve({"--max_num_seqs", "1", "--shutdown_timeout", "0", "--access_log", "false"}));
  ASSERT_NE(server.port(), 0) << server.log();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::int64_t i = 0; i < kRequests; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(stream_request(kCompletions, 200));
  }
  wait_until_queued(server, kRequests * kCompletions);
  RawClient whole(server.port());
  whole.send(http_request("POST", "/v1/completions",
                          R"({"prompt": "What is", "n": 32, "max_tokens": 200, "ignore_eos": true})"));
  wait_until_queued(server, (kRequests + 1) * kCompletions);
  server.signal(SIGTERM);
  std::int64_t cancelled = 0;
  for (const auto& client : clients) {
    const RawResponse response = client->receive();
    const bool finished = response.body.ends_with("data: [DONE]\n\n");
    const bool says_why = response.body.find("the server shuts down") != std::string::npos;
    EXPECT_NE(finished && response.status == 200, says_why) << response.head << response.body;
    cancelled += says_why ? 1 : 0;
    EXPECT_EQ(client->rest(), "");
  }
  EXPECT_GT(cancelled, 0);
  const RawResponse refused = whole.receive();
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("the server shuts down"));
  EXPECT_EQ(server.wait(), 0) << server.log();
}

TEST_F(ServeTest, AnswersOverTls) {
  const Certificate own = make_certificate();
  write_file(at("certificate.pem"), own.certificate);
  write_file(at("key.pem"), own.key);
  ServerProgram server(serve({"--ssl_certfile", at("certificate.pem"), "--ssl_keyfile", at("key.pem")}));
  ASSERT_NE(server.port(), 0) << server.log();
  EXPECT_THAT(server.log(), HasSubstr("on https://127.0.0.1:"));
  const Json body{{"prompt", "What is"}, {"max_tokens", 5}, {"ignore_eos", true}};
  const RawResponse answer = fetch_encrypted(server.port(), own.certificate, "POST", "/v1/completions", body.dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(Json::parse(answer.body)["usage"]["completion_tokens"], 5);
  EXPECT_EQ(fetch(server.port(), "GET", "/health").status, 400) << "plain HTTP";
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.log();
}

TEST_F(ServeTest, TheKeyMayComeFromTheEnvironmentAndIsNotLogged) {
  ::setenv("HONE_API_KEY", "very-secret", 1);
  ServerProgram server(serve({"--access_log", "false"}));
  ::unsetenv("HONE_API_KEY");
  ASSERT_NE(server.port(), 0) << server.log();
  EXPECT_EQ(fetch(server.port(), "GET", "/v1/models").status, 401);
  const RawResponse models = fetch(server.port(), "GET", "/v1/models", {}, "Authorization: Bearer very-secret\r\n");
  EXPECT_EQ(Json::parse(models.body)["data"][0]["id"], at("model"));
  server.signal(SIGINT);
  EXPECT_EQ(server.wait(), 0);
  EXPECT_EQ(server.log().find("secret"), std::string::npos);
  EXPECT_EQ(server.log().find("GET"), std::string::npos);
}

TEST_F(ServeTest, BenchMeasuresBothKindsOfLoad) {
  ServerProgram server(serve({"--access_log", "false"}));
  ASSERT_NE(server.port(), 0) << server.log();
  const std::string endpoint = "http://127.0.0.1:" + std::to_string(server.port());
  for (const std::string rate : {"0", "1000"}) {
    const Ended ended =
        run_program({"bench", "serve", "--endpoint", endpoint, "--num_prompts", "20", "--max_concurrency", "4",
                     "--request_rate", rate, "--prompt_words", "5", "--max_tokens", "6", "--json", at("bench.json")});
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("20 of 20 requests answered"));
    EXPECT_THAT(ended.output, HasSubstr("time to first token"));
    const Json rows = read_json(at("bench.json"));
    EXPECT_EQ(rows.size(), 15U);
    for (const Json& row : rows) EXPECT_GE(row["figure"].get<double>(), 0.0);
    EXPECT_GT(rows[1]["figure"].get<double>(), 0.0);
  }
  const Ended refused = run_program(
      {"bench", "serve", "--endpoint", endpoint, "--num_prompts", "2", "--prompt_words", "2000", "--max_tokens", "6"});
  EXPECT_EQ(refused.code, 1) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("max_model_len is 256"));
}

// With rollouts from hone serve a run has the bits of one whose rollouts come from its own process.
TEST_F(ServeTest, GrpoLearnsFromAServerWhatItLearnsFromItself) {
  constexpr const char* kKey = "HONE_TEST_ROLLOUT_KEY";
  const auto learn = [](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"grpo",
                                       "--model_name_or_path",
                                       at("model"),
                                       "--dataset_name",
                                       at("data/prompts.jsonl"),
                                       "--max_steps",
                                       "3",
                                       "--num_generations",
                                       "4",
                                       "--per_device_train_batch_size",
                                       "8",
                                       "--max_completion_length",
                                       "12",
                                       "--reward_funcs",
                                       "tag_count,length",
                                       "--learning_rate",
                                       "1e-3",
                                       "--logging_steps",
                                       "1",
                                       "--device",
                                       "cpu",
                                       "--output_dir",
                                       at(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run_program(arguments);
    EXPECT_EQ(ended.code, 0) << ended.output;
  };
  ::setenv("HONE_API_KEY", "very-secret", 1);
  ServerProgram server(serve({"--allow_weight_updates", "--max_model_len", "200"}));
  ::unsetenv("HONE_API_KEY");
  ASSERT_NE(server.port(), 0) << server.log();
  ::setenv(kKey, "very-secret", 1);
  learn("own", {});
  learn("served", {"--rollout", "server", "--rollout_server", "hone", "--rollout_key_variable", kKey,
                   "--vllm_server_url", "http://127.0.0.1:" + std::to_string(server.port())});
  ::unsetenv(kKey);
  EXPECT_THAT(server.log(), HasSubstr("POST /update_weights 200"));
  const std::vector<std::string> own = split(read_file(at("own/metrics.jsonl")), '\n');
  const std::vector<std::string> served = split(read_file(at("served/metrics.jsonl")), '\n');
  ASSERT_EQ(own.size(), served.size());
  std::size_t steps = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const Json row = own[i].empty() ? Json::object() : Json::parse(own[i]);
    if (!row.contains("loss")) continue;
    const Json other = Json::parse(served[i]);
    ++steps;
    for (const char* name : {"loss", "reward", "grad_norm", "num_tokens"}) EXPECT_EQ(row[name], other[name]) << name;
    EXPECT_EQ(other["sampling/sampling_logp_difference/max"], 0.0);
  }
  EXPECT_EQ(steps, 3U);
  EXPECT_EQ(read_file(at("own/model.safetensors")), read_file(at("served/model.safetensors")));
  EXPECT_EQ(read_file(at("own/completions/step-3.jsonl")), read_file(at("served/completions/step-3.jsonl")));
}

// An address in use is an error before the model is loaded, by one engine and by replicas.
TEST_F(ServeTest, AnAddressInUseIsFoundBeforeTheModelIsLoaded) {
  std::filesystem::create_directory(at("broken"));
  write_file(at("broken/config.json"), read_file(at("model/config.json")));
  write_file(at("broken/model.safetensors"), "no weights");
  ServerProgram server(serve({}));
  const std::string port = std::to_string(server.port());
  for (const char* replicas : {"1", "2"}) {
    const Ended ended =
        run_program({"serve", at("broken"), "--device", "cpu", "--port", port, "--data_parallel_size", replicas});
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(ended.output, text_of("hone: error: 127.0.0.1:", port,
                                    ": cannot listen: Address already in use (use another --host or --port)\n"));
  }
}

TEST_F(ServeTest, MistakesAreOneLine) {
  const Certificate own = make_certificate();
  write_file(at("one.pem"), own.certificate);
  write_file(at("one.key"), own.key);
  write_file(at("other.key"), make_certificate().key);
  ServerProgram server(serve({}));
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--max_model_len", "1000"}, "max_position_embeddings"},
      {{"--kv_cache_memory_bytes", "1000"}, "kv_cache_memory_bytes: the KV cache may have 1000 bytes"},
      {{"--port", std::to_string(server.port())}, "cannot listen: Address already in use"},
      {{"--host", "192.0.2.1"}, "cannot listen"},
      {{"--adapters", at("model")}, "is no NAME=FOLDER"},
      {{"--adapters", "one=" + at("model")}, "is not the folder of an adapter"},
      {{"--host", "0.0.0.0", "--allow_weight_updates"}, "allow_weight_updates: needs an API key on the host 0.0.0.0"},
      {{"--port", "65536"}, "port"},
      {{"--chat_template", "{% if %}"}, "chat template"},
      {{"--ssl_certfile", at("absent.pem"), "--ssl_keyfile", at("one.key")},
       "ssl_certfile: " + at("absent.pem") + ": cannot open"},
      {{"--ssl_certfile", at("one.key"), "--ssl_keyfile", at("one.key")}, "cannot be used as a certificate"},
      {{"--ssl_certfile", at("one.pem"), "--ssl_keyfile", at("other.key")},
       "ssl_keyfile: the key in " + at("other.key") + " is not that of the certificate"},
      {{"--ssl_certfile", at("one.pem")}, "has no private key"},
      {{"--ssl_keyfile", at("one.key")}, "ssl_keyfile: is given without a certificate"},
  };
  for (const auto& [more, expected] : cases) {
    const Ended ended = run_program(serve(more));
    EXPECT_EQ(ended.code, 1) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(expected));
    EXPECT_EQ(split(ended.output, '\n').size(), 2U) << ended.output;
  }
}

}  // namespace
}  // namespace hone::test
