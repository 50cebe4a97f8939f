// Weights that move while a server runs, over loopback: updates, sleep, pause, and the clients that ask for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "core/files.h"
#include "core/json_value.h"
#include "serve/small_server.h"
#include "support/device.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

SmallServerOptions open_options() {
  SmallServerOptions options;
  options.allow_weight_updates = true;
  options.max_model_len = 4000;
  return options;
}

Request long_request(const SmallServer& server, std::int64_t max_tokens = 20) {
  Request request{server.model().tokenizer.encode("What is the answer? The answer is 1 + 2. What is the answer is 3?"),
                  {.temperature = 1.0, .max_tokens = max_tokens, .seed = 7}};
  return request;
}

Json body_of(const Request& request) {
  return {{"prompt", request.prompt},
          {"max_tokens", request.sampling.max_tokens},
          {"temperature", 1},
          {"seed", request.sampling.seed},
          {"ignore_eos", true},
          {"return_token_ids", true},
          {"logprobs", 0}};
}

std::vector<TokenId> tokens_of(const RawResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  return Json::parse(response.body)["choices"][0]["token_ids"].get<std::vector<TokenId>>();
}

Json update_from(const std::filesystem::path& folder) { return {{"update_info", {{"weights_path", folder.string()}}}}; }

// A completion that runs while the test does something else.
class Background {
 public:
  Background(const SmallServer& server, const Request& request)
      : thread_([this, &server, request] {
          response_ = server.post("/v1/completions", body_of(request));
          over_ = true;
        }) {
    constexpr std::string_view kRunning = "vllm:num_requests_running{model_name=\"small\",engine=\"0\"} 1\n";
    while (!over_ && fetch(server.port(), "GET", "/metrics").body.find(kRunning) == std::string::npos) {
    }
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() {
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] RawResponse response() {
    thread_.join();
    return response_;
  }

 private:
  RawResponse response_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

TEST(Control, IsRefusedUnlessAllowed) {
  SmallServer closed;
  for (const char* path : {"/sleep", "/wake_up", "/pause", "/resume", "/reset_prefix_cache", "/update_weights",
                           "/collective_rpc", "/update_weights_from_disk", "/init_communicator"}) {
    const RawResponse response = closed.post(path, Json::object());
    EXPECT_EQ(response.status, 403) << path;
    EXPECT_THAT(response.body, HasSubstr("start it with --allow_weight_updates"));
  }
  SmallServerOptions options = open_options();
  options.api_key = "secret";
  SmallServer locked(options);
  EXPECT_EQ(locked.post("/sleep", Json::object()).status, 401);
  EXPECT_EQ(fetch(locked.port(), "POST", "/sleep", {}, "Authorization: Bearer secret\r\n").status, 200);
  SmallServer open(open_options());
  EXPECT_EQ(fetch(open.port(), "POST", "/pause", {}, "Origin: http://example.org\r\n").status, 403);
}

TEST(Control, AnUpdateReplacesTheWeightsAndForgetsThePrefixes) {
  const TemporaryDirectory folder;
  SmallServer server(open_options());
  server.write_weights(folder.path(), 2);
  const Request request = long_request(server);
  const Completion old = server.generated(request, 1);
  const Completion fresh = server.generated(request, 2);
  ASSERT_NE(old.tokens, fresh.tokens);
  EXPECT_EQ(tokens_of(server.post("/v1/completions", body_of(request))), old.tokens);
  const RawResponse updated = server.post("/update_weights", update_from(folder.path()));
  EXPECT_EQ(updated.status, 200) << updated.body;
  EXPECT_EQ(Json::parse(updated.body)["weight_version"], 1);
  const RawResponse response = server.post("/v1/completions", body_of(request));
  EXPECT_EQ(tokens_of(response), fresh.tokens);
  const Json logps = Json::parse(response.body)["choices"][0]["logprobs"]["token_logprobs"];
  for (std::size_t i = 0; i < fresh.logps.size(); ++i) EXPECT_EQ(logps[i].get<float>(), fresh.logps[i]);
  // The forms of vLLM's reload and of SGLang.
  const TemporaryDirectory third;
  server.write_weights(third.path(), 3);
  EXPECT_EQ(server
                .post("/collective_rpc",
                      {{"method", "reload_weights"}, {"kwargs", {{"weights_path", third.path().string()}}}})
                .status,
            200);
  EXPECT_EQ(tokens_of(server.post("/v1/completions", body_of(request))), server.generated(request, 3).tokens);
  const RawResponse sglang = server.post("/update_weights_from_disk", {{"model_path", folder.path().string()}});
  EXPECT_EQ(Json::parse(sglang.body)["success"], true);
  EXPECT_EQ(tokens_of(server.post("/v1/completions", body_of(request))), fresh.tokens);
}

TEST(Control, AFolderThatDoesNotFitChangesNothing) {
  const TemporaryDirectory folder;
  SmallServer server(open_options());
  const Request request = long_request(server);
  const std::vector<TokenId> tokens = server.generated(request).tokens;
  const auto refusal = [&](const std::filesystem::path& path) {
    const RawResponse response = server.post("/update_weights", update_from(path));
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_EQ(tokens_of(server.post("/v1/completions", body_of(request))), tokens);
    return response.body;
  };
  EXPECT_THAT(refusal(folder.path() / "nothing"), HasSubstr("is not a folder"));
  const auto changed = [&](const char* name, const std::function<void(Json&)>& change) {
    server.write_weights(folder.path() / name, 2, change);
    return refusal(folder.path() / name);
  };
  EXPECT_THAT(changed("theta", [](Json& config) { config["rope_theta"] = 20000.0; }),
              HasSubstr("rope_theta is 20000.0, but the model has 10000.0"));
  EXPECT_THAT(changed("more", [](Json& config) { config["sliding_window"] = 8; }),
              HasSubstr("sliding_window is 8, but the model has null"));
  EXPECT_THAT(changed("less", [](Json& config) { config.erase("rms_norm_eps"); }), HasSubstr("rms_norm_eps is null"));
  server.write_weights(folder.path() / "cut", 2);
  const std::filesystem::path file = folder.path() / "cut" / "model.safetensors";
  const std::string whole = read_file(file);
  write_file(file, whole.substr(0, whole.size() - 100));
  EXPECT_THAT(refusal(folder.path() / "cut"), HasSubstr("model.safetensors"));
  EXPECT_EQ(server.post("/update_weights", {{"update_info", {{"weights_path", 3}}}}).status, 400);
  EXPECT_EQ(server.post("/update_weights", Json::object()).status, 400);
  EXPECT_EQ(server.post("/collective_rpc", {{"method", "eval"}}).status, 501);
}

TEST(Control, RequestsUnderWayFinishWithTheOldWeightsOrContinueWithTheNew) {
  const TemporaryDirectory folder;
  SmallServer server(open_options());
  server.write_weights(folder.path(), 2);
  const Request request = long_request(server, 3000);
  const Completion old = server.generated(request, 1);
  {
    Background running(server, request);
    EXPECT_EQ(server.post("/update_weights", update_from(folder.path())).status, 200);
    EXPECT_EQ(tokens_of(running.response()), old.tokens) << "the default is to wait";
  }
  server.write_weights(folder.path(), 1);
  Background running(server, request);
  Json body = update_from(folder.path());
  body["mode"] = "keep";
  EXPECT_EQ(server.post("/update_weights", body).status, 200);
  const std::vector<TokenId> tokens = tokens_of(running.response());
  // The tokens after the update are those of the new weights, after a beginning that the old ones have drawn. The
  // random numbers depend on the seed and the position, so the new weights continue that beginning in a request of its
  // own.
  const std::vector<TokenId> begin = server.generated(request, 2).tokens;
  const auto kept = std::ranges::mismatch(tokens, begin).in1 - tokens.begin();
  ASSERT_LT(kept, std::ssize(tokens)) << "the update came after the completion";
  Request rest = request;
  rest.prompt.insert(rest.prompt.end(), tokens.begin(), tokens.begin() + kept);
  rest.sampling.max_tokens -= kept;
  EXPECT_EQ(server.generated(rest, 1).tokens, std::vector<TokenId>(tokens.begin() + kept, tokens.end()));
}

TEST(Control, PauseAbortsWaitsOrKeeps) {
  SmallServer server(open_options());
  const Request request = long_request(server, 3000);
  const std::vector<TokenId> whole = server.generated(request).tokens;
  const auto is_paused = [&] { return Json::parse(fetch(server.port(), "GET", "/is_paused").body)["is_paused"]; };
  for (const std::string mode : {"abort", "wait", "keep"}) {
    Background running(server, request);
    EXPECT_EQ(fetch(server.port(), "POST", "/pause?mode=" + mode).status, 200);
    EXPECT_EQ(is_paused(), true);
    std::thread later([&] { EXPECT_EQ(tokens_of(server.post("/v1/completions", body_of(request))), whole); });
    EXPECT_EQ(fetch(server.port(), "GET", "/health/").status, 200);
    EXPECT_EQ(fetch(server.port(), "POST", "/resume").status, 200);
    EXPECT_EQ(is_paused(), false);
    const RawResponse response = running.response();
    later.join();
    const std::vector<TokenId> tokens = tokens_of(response);
    EXPECT_EQ(Json::parse(response.body)["choices"][0]["finish_reason"], mode == "abort" ? "abort" : "length");
    if (mode == "abort") {
      EXPECT_LT(tokens.size(), whole.size());
    }
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), whole.begin())) << mode;
  }
  EXPECT_EQ(fetch(server.port(), "POST", "/pause?mode=later").status, 400);
  EXPECT_EQ(fetch(server.port(), "POST", "/pause?mood=wait").status, 400);
}

TEST(Control, SleepGivesMemoryBackAndWakingRestoresTheWeights) {
  const TemporaryDirectory folder;
  SmallServer server(open_options());
  server.write_weights(folder.path(), 2);
  const Request request = long_request(server);
  const auto call = [&](const std::string& target) { return fetch(server.port(), "POST", target).status; };
  const auto is_sleeping = [&] { return Json::parse(fetch(server.port(), "GET", "/is_sleeping").body)["is_sleeping"]; };
  // Here, since a device serves one thread at a time.
  const Completion expected = server.generated(request, 1);
  const std::size_t awake = server.resident().bytes();
  const std::size_t allocated = test_device().allocated_bytes();
  EXPECT_EQ(call("/sleep?level=1"), 200);
  EXPECT_EQ(is_sleeping(), true);
  EXPECT_EQ(server.resident().bytes(), 0U);
  EXPECT_LE(test_device().allocated_bytes() + awake, allocated);
  std::thread waiting([&] { EXPECT_EQ(tokens_of(server.post("/v1/completions", body_of(request))), expected.tokens); });
  EXPECT_EQ(call("/wake_up"), 200);
  EXPECT_EQ(is_sleeping(), false);
  waiting.join();
  EXPECT_EQ(server.resident().bytes(), awake);

  EXPECT_EQ(call("/sleep?level=2"), 200);
  EXPECT_EQ(server.resident().bytes(), 0U);
  EXPECT_EQ(server.post("/update_weights", update_from(folder.path())).status, 400) << "the weights are asleep";
  EXPECT_EQ(call("/wake_up?tags=kv_cache"), 400) << "the weights come first";
  EXPECT_EQ(call("/wake_up?tags=weights"), 200);
  EXPECT_EQ(is_sleeping(), true);
  EXPECT_EQ(call("/wake_up?tags=kv_cache"), 200);
  EXPECT_EQ(server.post("/v1/completions", body_of(request)).status, 503) << "there are no weights";
  EXPECT_EQ(server.post("/update_weights", update_from(folder.path())).status, 200);
  EXPECT_EQ(tokens_of(server.post("/v1/completions", body_of(request))), server.generated(request, 2).tokens);
  for (const char* wrong : {"/sleep?level=3", "/sleep?mode=keep", "/wake_up?tags=all", "/sleep?level="})
    EXPECT_EQ(call(wrong), 400) << wrong;
}

TEST(Control, AServerThatIsPausedOrAsleepStops) {
  for (const char* call : {"/pause?mode=keep", "/sleep"}) {
    SmallServer server(open_options());
    EXPECT_EQ(fetch(server.port(), "POST", call).status, 200);
    server.stop();
    EXPECT_EQ(server.post("/resume", Json::object()).status, 503);
  }
}

TEST(Control, TrlsClientsGenerateAndAreToldThatThereIsNoNccl) {
  SmallServer server(open_options());
  EXPECT_EQ(Json::parse(fetch(server.port(), "GET", "/get_world_size/").body)["world_size"], 1);
  const std::string text = "What is";
  const Json answer = Json::parse(server
                                      .post("/generate/", {{"prompts", {text, "The answer"}},
                                                           {"images", nullptr},
                                                           {"n", 2},
                                                           {"max_tokens", 5},
                                                           {"logprobs", 0},
                                                           {"generation_kwargs", {{"seed", 3}, {"ignore_eos", true}}}})
                                      .body);
  EXPECT_EQ(answer["prompt_ids"][0].get<std::vector<TokenId>>(), server.model().tokenizer.encode(text));
  ASSERT_EQ(answer["completion_ids"].size(), 4U);
  const Request request{server.model().tokenizer.encode(text), {.temperature = 1.0, .max_tokens = 5, .seed = 4}};
  const Completion expected = server.generated(request);
  EXPECT_EQ(answer["completion_ids"][1].get<std::vector<TokenId>>(), expected.tokens);
  EXPECT_EQ(answer["logprobs"][1][0][0].get<float>(), expected.logps[0]);
  EXPECT_EQ(answer["logprob_token_ids"][1][4][0], expected.tokens[4]);
  EXPECT_EQ(server.post("/generate/", {{"prompts", {text}}, {"images", {1}}}).status, 400);
  EXPECT_EQ(server.post("/generate/", Json::object()).status, 400);
  for (const Json& more : {Json("seed"), Json(3), Json::array({{{"seed", 3}}}), Json{{"prompt", "b"}}}) {
    const RawResponse response = server.post("/generate/", {{"prompts", {text}}, {"generation_kwargs", more}});
    EXPECT_EQ(response.status, 400) << more;
    EXPECT_THAT(response.body, HasSubstr("generation_kwargs")) << more;
  }
  EXPECT_EQ(server.post("/generate/", {{"prompts", {text}}, {"generation_kwargs", nullptr}}).status, 200);
  const RawResponse refused =
      server.post("/init_communicator/", {{"host", "127.0.0.1"}, {"port", 51216}, {"world_size", 2}});
  EXPECT_EQ(refused.status, 501);
  EXPECT_THAT(refused.body, HasSubstr("NCCL"));
  EXPECT_EQ(server.post("/close_communicator/", Json::object()).status, 200);
  EXPECT_EQ(server.post("/reset_prefix_cache/", Json::object()).status, 200);
}

TEST(Control, TrlsClientsCompleteConversations) {
  SmallServer server(open_options());
  const Json first = Json::array({{{"role", "user"}, {"content", "What is 1 + 2?"}}});
  const Json second = Json::array({{{"role", "system"}, {"content", "The answer"}}, first[0]});
  const Json sampling{{"n", 2}, {"max_tokens", 5}, {"temperature", 1.0}};
  Json body = sampling;
  body.update({{"messages", {first, second}},
               {"logprobs", 0},
               {"structured_outputs_regex", nullptr},
               {"generation_kwargs", {{"seed", 3}, {"ignore_eos", true}}},
               {"chat_template_kwargs", Json::object()},
               {"tools", nullptr}});
  const Json answer = Json::parse(server.post("/chat/", body).body);
  ASSERT_EQ(answer["completion_ids"].size(), 4U) << answer;
  for (std::size_t i = 0; i < 2; ++i) {
    Json chat = sampling;
    chat.update({{"messages", i == 0 ? first : second}, {"seed", 3}, {"ignore_eos", true}, {"return_token_ids", true}});
    const Json expected = Json::parse(server.post("/v1/chat/completions", chat).body);
    EXPECT_EQ(answer["prompt_ids"][i], expected["prompt_token_ids"]);
    for (std::size_t n = 0; n < 2; ++n)
      EXPECT_EQ(answer["completion_ids"][2 * i + n], expected["choices"][n]["token_ids"]);
  }
  for (const Json& messages : {Json(), Json::array(), Json("text"), Json{first[0]}, Json::array({Json::array()})}) {
    body["messages"] = messages;
    EXPECT_EQ(server.post("/chat/", body).status, 400) << messages;
  }
}

TEST(Control, CompletionsListTokensAndTakeSeeds) {
  SmallServer server(open_options());
  const Request first = long_request(server);
  Json body = body_of(first);
  body.erase("seed");
  body["n"] = 2;
  body["seeds"] = {18446744073709551615ULL, 7};
  body["return_tokens_as_token_ids"] = true;
  const Json choices = Json::parse(server.post("/v1/completions", body).body)["choices"];
  const std::vector<TokenId> tokens = server.generated(first).tokens;
  EXPECT_EQ(choices[1]["token_ids"].get<std::vector<TokenId>>(), tokens);
  EXPECT_EQ(choices[1]["prompt_token_ids"].get<std::vector<TokenId>>(), first.prompt);
  EXPECT_EQ(choices[1]["logprobs"]["tokens"][0], "token_id:" + std::to_string(tokens[0]));
  Request other = first;
  other.sampling.seed = 18446744073709551615ULL;
  EXPECT_EQ(choices[0]["token_ids"].get<std::vector<TokenId>>(), server.generated(other).tokens);
  body["seeds"] = {1};
  EXPECT_EQ(server.post("/v1/completions", body).status, 400);
}

}  // namespace
}  // namespace hone::test
