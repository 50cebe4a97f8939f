// Adapters by name, over loopback: each request has the bits of its adapter alone, whatever else is in the batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/files.h"
#include "core/json_value.h"
#include "serve/small_server.h"
#include "support/device.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

LoraConfig config_of(std::int64_t r, double alpha, std::vector<std::string> modules) {
  LoraConfig config;
  config.r = r;
  config.alpha = alpha;
  config.target_modules = std::move(modules);
  config.base_name = "small";
  return config;
}

const LoraConfig kAll = config_of(8, 16, {"all-linear"});
const LoraConfig kSome = config_of(3, 6, {"q_proj", "v_proj", "down_proj"});

class Adapters : public testing::Test {
 protected:
  static SmallServerOptions options(std::int64_t slots) {
    SmallServerOptions options;
    options.allow_weight_updates = true;
    options.adapter_slots = slots;
    return options;
  }
  [[nodiscard]] std::string write(const SmallServer& server, const char* name, const LoraConfig& config,
                                  std::uint64_t seed) const {
    const std::filesystem::path path = folder_.path() / name;
    server.write_adapter(path, config, seed);
    return path.string();
  }
  static RawResponse load(const SmallServer& server, const std::string& name, const std::string& path) {
    return server.post("/v1/load_lora_adapter", {{"lora_name", name}, {"lora_path", path}});
  }
  static Request request_of(const SmallServer& server, std::uint64_t seed) {
    return {server.model().tokenizer.encode("What is the answer? The answer is 1 + 2. What is the answer is 3?"),
            {.temperature = 1.0, .max_tokens = 30, .seed = seed}};
  }
  static void expect_same(const SmallServer& server, const std::string& name, const Request& request,
                          const Completion& expected) {
    const RawResponse response = server.post("/v1/completions", {{"model", name},
                                                                 {"prompt", request.prompt},
                                                                 {"max_tokens", 30},
                                                                 {"temperature", 1},
                                                                 {"seed", request.sampling.seed},
                                                                 {"ignore_eos", true},
                                                                 {"return_token_ids", true},
                                                                 {"logprobs", 0}});
    ASSERT_EQ(response.status, 200) << response.body;
    const Json choice = Json::parse(response.body)["choices"][0];
    EXPECT_EQ(choice["token_ids"].get<std::vector<TokenId>>(), expected.tokens) << name;
    // On a GPU the products of slots add in another order than those of an adapter alone.
    const float tolerance = test_device().kind() == DeviceKind::kCpu ? 0.0f : 1e-5f;
    for (std::size_t i = 0; i < expected.logps.size(); ++i)
      ASSERT_NEAR(choice["logprobs"]["token_logprobs"][i].get<float>(), expected.logps[i], tolerance) << name;
  }

  TemporaryDirectory folder_;
};

TEST_F(Adapters, HaveTheBitsOfTheAdapterAloneInAMixedBatch) {
  for (const std::int64_t slots : {1, 2, 3}) {  // with fewer slots than adapters they take turns
    SmallServer server(options(slots));
    ASSERT_EQ(load(server, "all", write(server, "all", kAll, 5)).status, 200);
    ASSERT_EQ(load(server, "some", write(server, "some", kSome, 6)).status, 200);
    ASSERT_EQ(load(server, "third", write(server, "third", kSome, 7)).status, 200);
    const Request request = request_of(server, 3);
    const std::vector<std::pair<std::string, Completion>> expected{{"small", server.generated(request)},
                                                                   {"all", server.adapted(request, kAll, 5)},
                                                                   {"some", server.adapted(request, kSome, 6)},
                                                                   {"third", server.adapted(request, kSome, 7)}};
    for (std::size_t i = 1; i < expected.size(); ++i)
      EXPECT_NE(expected[i].second.tokens, expected[i - 1].second.tokens);
    for (const auto& [name, completion] : expected) expect_same(server, name, request, completion);
    std::vector<std::thread> clients;
    for (int round = 0; round < 4; ++round)
      for (const auto& [name, completion] : expected)
        clients.emplace_back([&] { expect_same(server, name, request, completion); });
    for (std::thread& client : clients) client.join();
  }
}

TEST_F(Adapters, AreListedReplacedAndUnloaded) {
  SmallServer server(options(2));
  const std::string path = write(server, "one", kAll, 5);
  const RawResponse loaded = load(server, "one", path);
  EXPECT_EQ(loaded.body, "Success: LoRA adapter 'one' added successfully.");
  const Json models = Json::parse(fetch(server.port(), "GET", "/v1/models").body)["data"];
  EXPECT_EQ(models[2]["id"], "one");
  EXPECT_EQ(models[2]["parent"], "small");
  EXPECT_EQ(models[2]["root"], path);
  EXPECT_EQ(models[0]["parent"], nullptr);
  const Request request = request_of(server, 3);
  expect_same(server, "one", request, server.adapted(request, kAll, 5));
  EXPECT_EQ(load(server, "one", path).status, 400) << "the name is taken";
  const std::string other = write(server, "other", kSome, 6);
  EXPECT_EQ(
      server.post("/v1/load_lora_adapter", {{"lora_name", "one"}, {"lora_path", other}, {"load_inplace", true}}).status,
      200);
  expect_same(server, "one", request, server.adapted(request, kSome, 6));
  EXPECT_EQ(fetch(server.port(), "POST", "/sleep?level=2").status, 200);
  EXPECT_EQ(fetch(server.port(), "POST", "/wake_up").status, 200);
  const std::filesystem::path weights = folder_.path() / "weights";
  server.write_weights(weights, 1);
  EXPECT_EQ(server.post("/update_weights", {{"update_info", {{"weights_path", weights.string()}}}}).status, 200);
  expect_same(server, "one", request, server.adapted(request, kSome, 6));
  EXPECT_EQ(server.post("/v1/unload_lora_adapter", {{"lora_name", "one"}}).status, 200);
  EXPECT_EQ(server.post("/v1/unload_lora_adapter", {{"lora_name", "one"}}).status, 404);
  EXPECT_EQ(server.post("/v1/completions", {{"model", "one"}, {"prompt", "What"}}).status, 404);
}

TEST_F(Adapters, ThatDoNotFitAreRefusedInALine) {
  SmallServer server(options(1));
  const auto refusal = [&](const std::string& path) {
    const RawResponse response = load(server, "wrong", path);
    EXPECT_EQ(response.status, 400) << response.body;
    return response.body;
  };
  EXPECT_THAT(refusal((folder_.path() / "nothing").string()), HasSubstr("is not the folder of an adapter"));
  EXPECT_THAT(refusal(write(server, "large", config_of(9, 9, {"q_proj"}), 5)),
              HasSubstr("has rank 9, but max_lora_rank is 8"));
  EXPECT_THAT(refusal(write(server, "tables", config_of(4, 4, {"q_proj", "embed_tokens"}), 5)),
              HasSubstr("is none of a linear layer's adapter"));
  LoraConfig dora = kSome;
  dora.dora = true;
  EXPECT_THAT(refusal(write(server, "dora", dora, 5)), HasSubstr("use_dora: is true, which is not served by name"));
  EXPECT_EQ(load(server, "small", write(server, "taken", kSome, 5)).status, 400);
  SmallServer closed;
  EXPECT_EQ(load(closed, "one", "nowhere").status, 403);
  SmallServer without(options(0));
  EXPECT_THAT(load(without, "one", "nowhere").body, HasSubstr("start it with --max_loras"));
}

}  // namespace
}  // namespace hone::test
