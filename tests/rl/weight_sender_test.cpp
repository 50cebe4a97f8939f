// Weights that a run sends to servers of hone over NCCL. A fake takes NCCL's place; the servers, their calls and the
// store are real.
#include "rl/weight_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "rendezvous/trainer_link.h"
#include "rl/served_runs.h"
#include "support/device.h"
#include "support/loopback.h"
#include "support/paths.h"

namespace hone::test {
namespace {

class SentWeights : public ServedTest {};

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

TEST_F(SentWeights, ARunHasTheBitsOfItsOwnRollouts) {
  ServedRuns servers(1);
  const TemporaryDirectory own;
  const TemporaryDirectory served;
  GrpoOptions options = servers.options(own.path());
  options.rollout = RolloutKind::kOwn;
  (void)servers.train(options);
  for (const MetricRow& row : servers.train(servers.options(served.path())))
    EXPECT_EQ(value_of(row, "sampling/sampling_logp_difference/max"), 0.0);
  expect_same_run(served.path(), own.path());
  EXPECT_FALSE(is_folder(served.path() / "rollout_weights"));
  EXPECT_EQ(servers.at(0).resident().version(), 3);
  EXPECT_EQ(servers.nccl().sizes(), std::vector<int>{2}) << "one communicator for the whole run";
}

// Returns the completions that a server has finished.
std::int64_t finished(const SmallServer& server) {
  std::int64_t sum = 0;
  for (const std::string& line : split(fetch(server.port(), "GET", "/metrics").body, '\n')) {
    if (line.starts_with("vllm:request_success_total{")) sum += std::stoll(line.substr(line.rfind(' ')));
  }
  return sum;
}

TEST_F(SentWeights, SeveralServersShareThePromptsAndChangeNoBit) {
  ServedRuns servers(3);
  const TemporaryDirectory one;
  const TemporaryDirectory three;
  GrpoOptions options = servers.options(one.path());
  options.per_device_train_batch_size = 24;  // six prompts a step
  options.vllm_server_url.resize(1);
  (void)servers.train(options);
  EXPECT_EQ(finished(servers.at(0)), 72);
  options.output_dir = three.path().string();
  options.vllm_server_url = servers.options(three.path()).vllm_server_url;
  (void)servers.train(options);
  expect_same_run(three.path(), one.path());
  EXPECT_EQ(servers.nccl().sizes(), (std::vector<int>{2, 4}));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(servers.at(i).resident().version(), i == 0 ? 6 : 3);
    EXPECT_EQ(finished(servers.at(i)), i == 0 ? 72 + 24 : 24);
  }
}

TEST_F(SentWeights, SendsLargeTensorsInPlaceAndSmallOnesPacked) {
  ServedRuns servers(2);
  const std::unique_ptr<Model> model = family_registry().create(read_json(servers.folder() / "config.json"));
  constexpr PackedLimits kLimits{.tensor_bytes = 4000, .buffer_bytes = 3000};
  WeightSender sender(servers.nccl().backend(), servers.options("").vllm_server_url,
                      {.timeout = std::chrono::hours(10)}, kLimits);
  const Request request{{5, 7, 9}, {.temperature = 1.0, .max_tokens = 20, .seed = 7}};
  for (const std::uint64_t seed : {2, 3}) {
    const TensorStore weights = random_weights(*model, seed, DType::kF32, test_device());
    SentTensors tensors(*model, weights, test_device(), false);
    const std::size_t before = servers.nccl().broadcasts();
    sender.send(tensors);
    std::size_t large = 0;
    std::size_t largest = 0;
    for (const TensorNotice& notice : tensors.notices()) {
      large += notice.bytes() >= kLimits.tensor_bytes ? 1 : 0;
      largest = std::max(largest, notice.bytes());
    }
    EXPECT_GT(large, 2U);
    EXPECT_GT(servers.nccl().broadcasts() - before, large + 2) << "several buffers";
    EXPECT_LT(servers.nccl().broadcasts() - before, tensors.notices().size()) << "of several tensors";
    EXPECT_EQ(servers.nccl().largest(), largest);
    for (std::size_t i = 0; i < 2; ++i) {
      const RawResponse response = servers.at(i).post("/v1/completions", {{"prompt", request.prompt},
                                                                          {"max_tokens", request.sampling.max_tokens},
                                                                          {"temperature", 1},
                                                                          {"seed", request.sampling.seed},
                                                                          {"ignore_eos", true},
                                                                          {"return_token_ids", true}});
      EXPECT_EQ(Json::parse(response.body)["choices"][0]["token_ids"].get<std::vector<TokenId>>(),
                servers.at(i).generated(request, seed).tokens);
    }
  }
  EXPECT_EQ(servers.nccl().sizes(), std::vector<int>{3}) << "one communicator";
}

TEST_F(SentWeights, AnAdapterIsSentMerged) {
  ServedRuns servers(1);
  const TemporaryDirectory folder;
  const TemporaryDirectory nccl;
  for (const fs::path& output : {folder.path(), nccl.path()}) {
    GrpoOptions options = servers.options(output);
    options.rollout_weights = output == folder.path() ? RolloutWeights::kFolder : RolloutWeights::kNccl;
    options.use_peft = true;
    options.lora_r = 4;
    options.lora_target_modules = {"all-linear"};
    (void)servers.train(options);
    EXPECT_EQ(is_folder(output / "rollout_weights"), output == folder.path());
    EXPECT_FALSE(is_folder(output / "rollout_weights.adapter"));
  }
  for (const char* file : {"adapter_model.safetensors", "completions/step-3.jsonl"})
    EXPECT_EQ(read_file(nccl.path() / file), read_file(folder.path() / file)) << file;
  EXPECT_GT(servers.nccl().broadcasts(), 0U);
}

// Returns the message of a run that must use NCCL and cannot.
std::string refusal(ServedRuns& servers, GrpoOptions options) {
  options.rollout_weights = RolloutWeights::kNccl;
  options.output_dir += "/again";
  try {
    (void)servers.train(options);
    return "none";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_F(SentWeights, WhereAServerTakesFoldersOnlyTheyAreUsed) {
  ServedRuns servers(1, false);
  const TemporaryDirectory directory;
  const GrpoOptions options = servers.options(directory.path());
  (void)servers.train(options);
  EXPECT_TRUE(is_folder(directory.path() / "rollout_weights"));
  EXPECT_EQ(servers.nccl().broadcasts(), 0U);
  EXPECT_THAT(refusal(servers, options),
              AllOf(HasSubstr("rollout_weights: is nccl, but http://127.0.0.1:"),
                    HasSubstr("takes weights from folders only"), HasSubstr("(rollout_weights: folder)")));
}

TEST_F(SentWeights, WhereNcclRefusesAFolderIsUsed) {
  ServedRuns servers(2);
  servers.nccl().refuse();
  const TemporaryDirectory directory;
  const GrpoOptions options = servers.options(directory.path());
  ASSERT_EQ(servers.train(options).size(), 3U);
  EXPECT_TRUE(is_folder(directory.path() / "rollout_weights"));
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(servers.at(i).resident().version(), 3);
  EXPECT_THAT(refusal(servers, options), AllOf(HasSubstr("is nccl, but "), HasSubstr("the fake: refuses")));
}

// The run ends in one line, and continues with another server.
TEST_F(SentWeights, AServerThatIsLostEndsTheRun) {
  ServedRuns servers(2);
  const TemporaryDirectory whole;
  (void)servers.train(servers.options(whole.path()));
  const TemporaryDirectory ended;
  GrpoOptions options = servers.options(ended.path());
  GrpoRun run = servers.run(options);
  run.rewards.push_back({"stops", "stops",
                         [&, generations = 0](std::span<const RewardInput> batch) mutable {
                           if (++generations == 2) servers.at(1).stop();
                           return RewardScores(batch.size());
                         },
                         RewardScope::kBatch});
  run.reward_weights.push_back(0.0);
  try {
    (void)train(run);
    ADD_FAILURE() << "nothing is thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(options.vllm_server_url[1] + "/start_weight_update: answers 503"));
  }
  EXPECT_TRUE(is_folder(ended.path() / "checkpoint-2"));
  options.resume_from_checkpoint = "true";
  options.vllm_server_url.resize(1);
  (void)servers.train(options);
  EXPECT_EQ(read_file(ended.path() / "model.safetensors"), read_file(whole.path() / "model.safetensors"));
}

// A server without an engine: it answers as a test says and may join the communicator.
class HollowServer {
 public:
  using Answer = std::function<std::string(const LoopbackRequest&)>;

  explicit HollowServer(Answer answer) : loopback_(std::move(answer)) {}
  [[nodiscard]] std::string url() const { return loopback_.url(); }

 private:
  Loopback loopback_;
};

class FailingServer : public testing::Test {
 protected:
  // Joins the communicator that a call of /init_weight_transfer_engine names.
  std::string join(const LoopbackRequest& request) {
    const Json info = Json::parse(request.body).at("init_info");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    link_ = std::make_unique<JoinedLink>(info["master_address"].get<std::string>(),
                                         info["master_port"].get<std::uint16_t>(), deadline, nullptr);
    rank_ = nccl_.backend().join(link_->id(), info["rank_offset"], info["world_size"], [] { return false; });
    return http_answer("200 OK", "{}");
  }
  // Returns the message of a transfer to a server that answers so.
  std::string failure(const HollowServer::Answer& answer, std::chrono::milliseconds timeout = std::chrono::hours(10)) {
    const HollowServer server(answer);
    const std::unique_ptr<Model> model = family_registry().create(read_json(fixture("models") / "qwen3/config.json"));
    const TensorStore weights = random_weights(*model, 1, DType::kF32, test_device());
    WeightSender sender(nccl_.backend(), {server.url()}, {.timeout = timeout});
    SentTensors tensors(*model, weights, test_device(), false);
    try {
      sender.send(tensors);
      return "none";
    } catch (const Error& error) {
      return error.what();
    }
  }

  FakeNccl nccl_{test_device()};
  std::unique_ptr<JoinedLink> link_;
  std::unique_ptr<BroadcastRank> rank_;
};

TEST_F(FailingServer, EndsATransferInOneLine) {
  const std::string ok = http_answer("200 OK", "{}");
  EXPECT_THAT(failure([](const LoopbackRequest&) { return http_answer("501 Not Implemented", R"({"error": "no"})"); }),
              HasSubstr("/init_weight_transfer_engine: answers 501: no"));
  const auto at_update = [&](const std::string& answer) {
    return failure([&](const LoopbackRequest& request) {
      if (request.line.find("/init") != std::string::npos) return join(request);
      return request.line.find("/update_weights") != std::string::npos ? answer : ok;
    });
  };
  // It has joined, and takes no part in the first broadcast.
  EXPECT_THAT(at_update(http_answer("500 Internal Server Error", R"({"error": "out of memory"})")),
              HasSubstr("/update_weights: answers 500: out of memory"));
  EXPECT_THAT(at_update(http_answer("400 Bad Request", R"({"error": "the names"})")),
              HasSubstr("/update_weights: answers 400: the names"));
  EXPECT_THAT(at_update("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n"),
              HasSubstr("/update_weights: gives no answer"));
}

TEST_F(FailingServer, ThatIsLateEndsATransferInOneLine) {
  std::atomic<bool> over = false;
  const auto silent = [&](const LoopbackRequest&) {
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::string();
  };
  std::thread later;
  EXPECT_THAT(failure(
                  [&](const LoopbackRequest& request) {
                    if (!later.joinable())
                      later = std::thread([&] {
                        std::this_thread::sleep_for(std::chrono::seconds(1));
                        over = true;
                      });
                    return silent(request);
                  },
                  std::chrono::milliseconds(100)),
              AllOf(HasSubstr("/init_weight_transfer_engine: gives no answer"), HasSubstr("tried 1 times")));
  later.join();
}

}  // namespace
}  // namespace hone::test
