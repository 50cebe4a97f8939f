// GRPO with rollouts from a server: a loopback server that runs hone's engine, and servers that give invalid answers.
#include "rl/server_rollout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "rl/interrupt_handlers.h"
#include "rl/model_endpoint.h"
#include "rl/small_run.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/trainer.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kLogpDifference = "sampling/sampling_logp_difference/max";
constexpr const char* kLeastRatio = "sampling/importance_sampling_ratio/min";
constexpr const char* kMostRatio = "sampling/importance_sampling_ratio/max";

constexpr double kPatient = 36'000;  // seconds; no test with a working server times out

GrpoOptions server_options(const fs::path& output_dir, const ModelEndpoint& endpoint) {
  GrpoOptions options = small_options(output_dir);
  options.rollout = RolloutKind::kServer;
  options.vllm_server_url = {endpoint.url() + "/v1"};
  options.vllm_server_timeout = kPatient;
  options.learning_rate = 1e-2;
  options.per_device_train_batch_size = 8;
  return options;
}

std::string failure_of(const GrpoOptions& options) {
  try {
    (void)train_rows(options, 2);
  } catch (const Error& failure) {
    return failure.what();
  }
  return "no failure";
}

// Each generation uses the current weights: the server's log-probabilities equal the trainer's.
TEST(ServerRollout, TrainsOnWhatTheServerSamples) {
  for (const bool is_sglang : {false, true}) {
    const TemporaryDirectory directory;
    ModelEndpoint endpoint;
    endpoint.is_sglang = is_sglang;
    GrpoOptions options = server_options(directory.path(), endpoint);
    options.rollout_server = is_sglang ? RolloutServer::kSglang : RolloutServer::kVllm;
    options.top_k = 50;
    options.repetition_penalty = 1.1;
    const std::vector<MetricRow> rows = train_rows(options, 4);
    ASSERT_EQ(rows.size(), 4u);
    for (const MetricRow& row : rows) {
      EXPECT_LT(value_of(row, kLogpDifference), 2e-6);
      EXPECT_NEAR(value_of(row, kLeastRatio), 1.0, 1e-5);
      EXPECT_NEAR(value_of(row, kMostRatio), 1.0, 1e-5);
      EXPECT_GT(value_of(row, "grad_norm"), 0.0);
    }
    std::vector<std::string> wanted;
    for (int step = 0; step < 4; ++step) {
      if (is_sglang) wanted.emplace_back("/update_weights_from_disk");
      if (!is_sglang) wanted.insert(wanted.end(), {"/collective_rpc", "/reset_prefix_cache"});
      wanted.insert(wanted.end(), 2, "/v1/completions");
    }
    EXPECT_EQ(endpoint.paths(), wanted);
    EXPECT_LE(endpoint.connections(), 2) << "the two prompts of a step are requested concurrently";
    for (const Json& request : endpoint.requests()) {
      EXPECT_EQ(request.at("n"), 4);
      EXPECT_EQ(request.at("max_tokens"), 12);
      EXPECT_EQ(request.at("temperature"), 0.9);
      EXPECT_EQ(request.at("top_p"), 1.0);
      EXPECT_EQ(request.at("top_k"), 50);
      EXPECT_EQ(request.at("min_p"), 0.0);
      EXPECT_EQ(request.at("repetition_penalty"), 1.1);
      EXPECT_EQ(request.at("return_token_ids"), true);
      EXPECT_LE(request.at("seed").get<std::uint64_t>(), 0x7FFF'FFFFu);
    }
    EXPECT_EQ(completions_of(options, 4).size(), 8u);
    EXPECT_TRUE(is_file(directory.path() / "rollout_weights" / "tokenizer.json"));
  }
}

TEST(ServerRollout, AServerThatKeepsItsWeightsIsSeenAndCorrected) {
  std::vector<double> losses;
  for (const bool corrected : {true, false}) {
    const TemporaryDirectory directory;
    ModelEndpoint endpoint;
    endpoint.keeps_first_weights = true;
    GrpoOptions options = server_options(directory.path(), endpoint);
    options.vllm_importance_sampling_correction = corrected;
    options.vllm_importance_sampling_mode = ImportanceMode::kTokenTruncate;
    options.vllm_importance_sampling_cap = 1.5;
    const std::vector<MetricRow> rows = train_rows(options, 3);
    EXPECT_LT(value_of(rows[0], kLogpDifference), 2e-6);
    for (const std::size_t later : {1u, 2u}) {
      EXPECT_GT(value_of(rows[later], kLogpDifference), 1e-2);
      EXPECT_LT(value_of(rows[later], kLeastRatio), 0.99);
      EXPECT_GT(value_of(rows[later], kMostRatio), 1.01);
      EXPECT_LE(value_of(rows[later], kMostRatio), 1.5);
    }
    losses.push_back(value_of(rows[1], "loss"));
  }
  EXPECT_NE(losses[0], losses[1]);
}

TEST(ServerRollout, AnAdapterIsSentMerged) {
  const TemporaryDirectory directory;
  ModelEndpoint endpoint;
  GrpoOptions options = server_options(directory.path(), endpoint);
  options.use_peft = true;
  options.lora_r = 4;
  options.lora_alpha = 8;
  options.lora_target_modules = {"all-linear"};
  const std::vector<MetricRow> rows = train_rows(options, 3);
  for (const MetricRow& row : rows) EXPECT_LT(value_of(row, kLogpDifference), 1e-4);
  EXPECT_FALSE(is_file(directory.path() / "rollout_weights" / "adapter_config.json"));
}

TEST(ServerRollout, WhatFailsInPassingIsAskedAgain) {
  const TemporaryDirectory directory;
  ModelEndpoint endpoint;
  endpoint.failures = 2;
  EXPECT_EQ(train_rows(server_options(directory.path(), endpoint), 1).size(), 1u);
}

void expect_same(const std::vector<MetricRow>& later, const std::vector<MetricRow>& rows) {
  ASSERT_FALSE(later.empty());
  EXPECT_EQ(later.back().step, 4);
  for (const MetricRow& row : later) {
    for (const char* name : {"loss", "reward", "grad_norm", "num_tokens"}) {
      EXPECT_EQ(value_of(row, name), value_of(rows.at(static_cast<std::size_t>(row.step) - 1), name)) << row.step;
    }
  }
}

// After a server died, the same command continues from the checkpoint bit for bit.
TEST(ServerRollout, GoesOnAfterTheServerHasDied) {
  const TemporaryDirectory whole;
  const TemporaryDirectory stopped;
  ModelEndpoint endpoint;
  const std::vector<MetricRow> rows = train_rows(server_options(whole.path(), endpoint), 4);
  GrpoOptions options = server_options(stopped.path(), endpoint);
  std::string failure;
  // vllm_server_timeout limits both the retries of a dead server and each answer of a working one, so a value that is
  // short enough for the first may be too short for the second on a busy machine.
  for (options.vllm_server_timeout = 3; failure.find("answers 500") == std::string::npos;
       options.vllm_server_timeout *= 4) {
    fs::remove_all(stopped.path());
    endpoint.dies_after = static_cast<int>(endpoint.requests().size()) + 5;
    try {
      (void)train_rows(options, 4);
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  EXPECT_THAT(failure, AllOf(HasSubstr("/v1/completions: answers 500: out of memory (tried "),
                             HasSubstr("continues from the last checkpoint)")));
  EXPECT_TRUE(is_folder(stopped.path() / "checkpoint-2"));
  endpoint.dies_after = -1;
  options.vllm_server_timeout = kPatient;
  expect_same(train_rows(options, 4), rows);
  EXPECT_EQ(read_file(whole.path() / "model.safetensors"), read_file(stopped.path() / "model.safetensors"));
}

TEST(ServerRollout, GoesOnAfterCtrlC) {
  const TemporaryDirectory whole;
  const TemporaryDirectory stopped;
  ModelEndpoint endpoint;
  const std::vector<MetricRow> rows = train_rows(server_options(whole.path(), endpoint), 4);
  const GrpoOptions options = server_options(stopped.path(), endpoint);
  int asked = 0;
  endpoint.change = [&asked](Json&) {
    if (++asked == 5) ::raise(SIGINT);
  };
  {
    const InterruptHandlers handlers;
    EXPECT_THROW((void)train_rows(options, 4), Interrupted);
  }
  EXPECT_TRUE(is_folder(stopped.path() / "checkpoint-2"));
  expect_same(train_rows(options, 4), rows);
  EXPECT_EQ(read_file(whole.path() / "model.safetensors"), read_file(stopped.path() / "model.safetensors"));
}

TEST(ServerRollout, MistakesAreNamedInALine) {
  const TemporaryDirectory directory;
  // Returns the error of a run after `change` to the server and the options.
  const auto failure = [&](const std::function<void(ModelEndpoint&, GrpoOptions&)>& change) {
    ModelEndpoint endpoint;
    GrpoOptions options = server_options(directory.path(), endpoint);
    change(endpoint, options);
    return failure_of(options);
  };
  // The timeout limits the retries; a busy machine may need more seconds for an answer.
  std::string nonsense = "gives no answer";
  for (double seconds = 3; nonsense.find("gives no answer") != std::string::npos; seconds *= 4) {
    nonsense = failure([seconds](ModelEndpoint& endpoint, GrpoOptions& options) {
      endpoint.body = "<html>";
      options.vllm_server_timeout = seconds;
    });
  }
  EXPECT_THAT(nonsense, HasSubstr("/v1/completions: the answer is not a valid completion: the answer"));
  EXPECT_THAT(failure([](ModelEndpoint& endpoint, GrpoOptions&) {
                endpoint.change = [](Json& answer) { answer["choices"][0].erase("token_ids"); };
              }),
              HasSubstr("/v1/completions: a choice has no token_ids although return_token_ids is set"));
  EXPECT_THAT(failure([](ModelEndpoint& endpoint, GrpoOptions&) { endpoint.is_sglang = true; }),
              HasSubstr("/collective_rpc: answers 404: {\"detail\":\"Not Found\"} (vllm serve needs "
                        "VLLM_SERVER_DEV_MODE=1"));
  EXPECT_THAT(failure([](ModelEndpoint&, GrpoOptions& options) { options.rollout_server = RolloutServer::kSglang; }),
              HasSubstr("(for vLLM set rollout_server: vllm)"));
  EXPECT_THAT(failure([](ModelEndpoint& endpoint, GrpoOptions& options) {
                endpoint.is_silent = true;
                options.vllm_server_timeout = 0.1;
              }),
              HasSubstr("/collective_rpc: gives no answer: "));
  EXPECT_THAT(failure([](ModelEndpoint&, GrpoOptions& options) {
                options.vllm_server_url = {"http://127.0.0.1:1"};
                options.vllm_server_timeout = 0.1;
              }),
              HasSubstr("http://127.0.0.1:1/collective_rpc: gives no answer: "));
  EXPECT_FALSE(is_folder(directory.path() / "checkpoint-0")) << "no step was done, so nothing is saved";
}

Json good_answer() {
  return Json::parse(R"({"choices": [
      {"index": 1, "token_ids": [7, 8, 2, 9], "logprobs": {"token_logprobs": [-1.0, -2.0, -3.0, -4.0]}},
      {"index": 0, "token_ids": [3], "logprobs": {"token_logprobs": [-0.5]}}]})");
}

const SamplingParams kSampling{.max_tokens = 4, .stop_token_ids = {2}};

TEST(ServerAnswer, IsReadInTheOrderOfItsIndicesUpToTheEnd) {
  const Tokenizer tokenizer = letter_tokenizer(20);
  const auto completions = read_server_answer(good_answer().dump(), kSampling, 2, tokenizer, 20);
  EXPECT_EQ(completions[0].tokens, (std::vector<TokenId>{3}));
  EXPECT_EQ(completions[0].finish_reason, FinishReason::kLength);
  EXPECT_EQ(completions[0].text, tokenizer.decode(completions[0].tokens));
  EXPECT_EQ(completions[1].tokens, (std::vector<TokenId>{7, 8, 2}));
  EXPECT_EQ(completions[1].logps, (std::vector<float>{-1.0f, -2.0f, -3.0f}));
  EXPECT_EQ(completions[1].finish_reason, FinishReason::kStop);
  EXPECT_EQ(completions[1].text, tokenizer.decode(std::vector<TokenId>{7, 8}));
}

TEST(ServerAnswer, WhatIsWrongIsSaid) {
  struct Wrong {
    const char* line;
    std::function<void(Json& answer, Json& choice)> change;
  };
  const std::vector<Wrong> cases{
      {"the answer has no choices", [](Json& answer, Json&) { answer.erase("choices"); }},
      {"the answer has no choices", [](Json& answer, Json&) { answer = Json::array(); }},
      {"the answer has 3 choices, but 2 were requested",
       [](Json& answer, Json& choice) { answer["choices"].push_back(Json(choice)); }},
      {"the answer has 0 choices, but 2 were requested",
       [](Json& answer, Json&) { answer["choices"] = Json::array(); }},
      {"a choice has no index", [](Json&, Json& choice) { choice.erase("index"); }},
      {"the index 2 of a choice is repeated or not below the 2 requested",
       [](Json&, Json& choice) { choice["index"] = 2; }},
      {"the index 0 of a choice is repeated or not below the 2 requested",
       [](Json&, Json& choice) { choice["index"] = 0; }},
      {"the index -1 of a choice is repeated or not below the 2 requested",
       [](Json&, Json& choice) { choice["index"] = -1; }},
      {"a choice has no token_ids although return_token_ids is set: the server is too old, or of another kind",
       [](Json&, Json& choice) { choice["token_ids"] = nullptr; }},
      {"a choice has no logprobs.token_logprobs although logprobs is set",
       [](Json&, Json& choice) { choice["logprobs"] = nullptr; }},
      {"a choice has no logprobs.token_logprobs although logprobs is set",
       [](Json&, Json& choice) { choice["logprobs"] = {{"tokens", 1}}; }},
      {"a choice has 4 token_ids and 3 token_logprobs",
       [](Json&, Json& choice) { choice["logprobs"]["token_logprobs"].erase(0); }},
      {"a choice has 0 token_ids and 0 token_logprobs",
       [](Json&, Json& choice) {
         choice["token_ids"] = Json::array();
         choice["logprobs"]["token_logprobs"] = Json::array();
       }},
      {"a choice has 5 tokens, but max_tokens 4 was requested",
       [](Json&, Json& choice) {
         choice["token_ids"].push_back(1);
         choice["logprobs"]["token_logprobs"].push_back(-1.0);
       }},
      {"token id 20 is outside the vocabulary of 20", [](Json&, Json& choice) { choice["token_ids"][0] = 20; }},
      {"token id -1 is outside the vocabulary of 20", [](Json&, Json& choice) { choice["token_ids"][0] = -1; }},
      {"token id 18446744073709551615 is outside the vocabulary of 20",
       [](Json&, Json& choice) { choice["token_ids"][0] = 18446744073709551615ull; }},
      {"token id 1.5 is outside the vocabulary of 20", [](Json&, Json& choice) { choice["token_ids"][0] = 1.5; }},
      {"a log-probability is null, expected a number",
       [](Json&, Json& choice) { choice["logprobs"]["token_logprobs"][1] = nullptr; }},
      {"a log-probability is \"x\", expected a number",
       [](Json&, Json& choice) { choice["logprobs"]["token_logprobs"][1] = "x"; }},
  };
  const Tokenizer tokenizer = letter_tokenizer(20);
  for (const Wrong& wrong : cases) {
    Json answer = good_answer();
    Json choice = answer["choices"][0];
    wrong.change(answer, choice);
    if (answer.is_object() && answer.contains("choices") && answer["choices"].size() == 2)
      answer["choices"][0] = choice;
    try {
      (void)read_server_answer(answer.dump(), kSampling, 2, tokenizer, 20);
      ADD_FAILURE() << wrong.line;
    } catch (const WrongAnswer& error) {
      EXPECT_STREQ(error.what(), wrong.line);
    }
  }
  EXPECT_THROW((void)read_server_answer("{\"choices\": [", kSampling, 2, tokenizer, 20), Error);
}

}  // namespace
}  // namespace hone::test
