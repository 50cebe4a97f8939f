// Tests hone serve as a program: its answers are those of hone generate, its shutdown, and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <csignal>
#include <thread>

#include "cli/program.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "support/raw_client.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

class ServeTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    write_miniature(folder_->path());
    const Ended ended = run_program(pretrain_arguments(
        folder_->path(), {"--max_steps", "1", "--per_device_train_batch_size", "2", "--output_dir", at("model")}));
    ASSERT_EQ(ended.code, 0) << ended.output;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  [[nodiscard]] static std::string at(const std::string& name) { return (folder_->path() / name).string(); }
  [[nodiscard]] static std::vector<std::string> serve(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"serve", at("model"), "--port", "0", "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

 private:
  static std::unique_ptr<TemporaryDirectory> folder_;
};
std::unique_ptr<TemporaryDirectory> ServeTest::folder_;

// A server in a child process, which is killed unless the test has ended it.
class ServerProgram {
 public:
  explicit ServerProgram(const std::vector<std::string>& arguments) : child_(start_program(arguments, log_path())) {
    constexpr std::string_view kPlace = "http://127.0.0.1:";
    while (is_running(child_)) {
      const std::string text = log();
      const std::size_t place = text.find(kPlace);
      if (place != std::string::npos && text.find('\n', place) != std::string::npos) {
        port_ = static_cast<std::uint16_t>(std::stoi(text.substr(place + kPlace.size())));
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ServerProgram(const ServerProgram&) = delete;
  ServerProgram& operator=(const ServerProgram&) = delete;
  ~ServerProgram() {
    if (ended_) return;
    ::kill(child_, SIGKILL);
    (void)wait_for(child_);
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string log() const { return is_file(log_path()) ? read_file(log_path()) : ""; }
  void signal(int number) const { ::kill(child_, number); }
  [[nodiscard]] int wait() {
    ended_ = true;
    return wait_for(child_);
  }

 private:
  [[nodiscard]] std::filesystem::path log_path() const { return folder_.path() / "log"; }

  TemporaryDirectory folder_;
  pid_t child_;
  std::uint16_t port_ = 0;
  bool ended_ = false;
};

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

TEST_F(ServeTest, MistakesAreOneLine) {
  ServerProgram server(serve({}));
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--max_model_len", "1000"}, "max_position_embeddings"},
      {{"--kv_cache_memory_bytes", "1000"}, "kv_cache_memory_bytes: the KV cache may have 1000 bytes"},
      {{"--port", std::to_string(server.port())}, "cannot listen: Address already in use"},
      {{"--host", "192.0.2.1"}, "cannot listen"},
      {{"--adapters", at("model")}, "is no NAME=FOLDER"},
      {{"--adapters", "one=" + at("model")}, "is not the folder of an adapter"},
      {{"--host", "0.0.0.0", "--allow_weight_updates"}, "allow_weight_updates: needs an API key on the host 0.0.0.0"},
      {{"--port", "65536"}, "port"},
      {{"--chat_template", "{% if %}"}, "chat template"},
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
