// Many clients, clients that leave, full queues, and the end of the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json_value.h"
#include "serve/small_server.h"
#include "system/process.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

std::string stream_body(std::int64_t max_tokens, int seed = 1) {
  return Json{
      {"prompt", "What is 1 + 2?"}, {"max_tokens", max_tokens}, {"seed", seed}, {"ignore_eos", true}, {"stream", true}}
      .dump();
}

std::string text_of_stream(const std::string& stream) {
  std::string text;
  for (const std::string& event : events_of(stream))
    if (event != "[DONE]") text += Json::parse(event)["choices"][0]["text"].get<std::string>();
  return text;
}

// A request that takes hours: 100 completions of 99,000 tokens, one after the other.
constexpr std::int64_t kEndless = 100;
std::string endless_body(bool stream) {
  return Json{{"prompt", "a"}, {"max_tokens", 99000}, {"ignore_eos", true}, {"n", kEndless}, {"stream", stream}}.dump();
}

// Waits until a metric is at least `least`.
void wait_for_metric(const SmallServer& server, const std::string& name, std::int64_t least) {
  for (;;) {
    const std::string metrics = fetch(server.port(), "GET", "/metrics").body;
    const std::size_t at = metrics.find("\n" + name);
    if (at != std::string::npos && std::stod(metrics.substr(metrics.find("} ", at) + 2)) >= static_cast<double>(least))
      return;
  }
}
constexpr const char* kAborted = R"(vllm:request_success_total{model_name="small",engine="0",finished_reason="abort")";
constexpr const char* kBegun = "vllm:request_params_max_tokens_count{";

SmallServerOptions one_at_a_time() { return {.max_model_len = 100'000, .max_num_seqs = 1}; }

// Bytes by which a process may grow while it serves as many streams again. The address sanitizer keeps up to 256 MiB of
// freed memory (quarantine_size_mb).
#ifdef __SANITIZE_ADDRESS__
constexpr std::uint64_t kMostGrowth = (32 + 256) << 20;
#else
constexpr std::uint64_t kMostGrowth = 32 << 20;
#endif

TEST(ServerLoad, FiveHundredStreamsEqualThoseThatRunAlone) {
  constexpr int kStreams = 500;
  SmallServer server;
  std::vector<std::string> alone;
  for (int seed = 0; seed < 10; ++seed)
    alone.push_back(text_of_stream(fetch(server.port(), "POST", "/v1/completions", stream_body(24, seed)).body));
  std::uint64_t resident = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < kStreams; ++i) clients.push_back(std::make_unique<RawClient>(server.port()));
    for (int i = 0; i < kStreams; ++i)
      clients[static_cast<std::size_t>(i)]->send(http_request("POST", "/v1/completions", stream_body(24, i % 10)));
    for (int i = 0; i < kStreams; ++i) {
      const RawResponse response = clients[static_cast<std::size_t>(i)]->receive();
      ASSERT_EQ(response.status, 200);
      ASSERT_EQ(text_of_stream(response.body), alone[static_cast<std::size_t>(i % 10)]);
    }
    clients.clear();
    if (round == 0) resident = resident_bytes();
  }
  EXPECT_LT(resident_bytes(), resident + kMostGrowth) << "after as many streams again";
}

TEST(ServerLoad, AClientThatLeavesFreesItsPlace) {
  SmallServer server(one_at_a_time());
  RawClient leaves(server.port());
  leaves.send(http_request("POST", "/v1/completions", endless_body(true)));
  ASSERT_TRUE(leaves.wait_for("data: "));
  RawClient waits(server.port());
  waits.send(http_request("POST", "/v1/completions", stream_body(2)));
  leaves.close();
  EXPECT_EQ(events_of(waits.receive().body).back(), "[DONE]");
  wait_for_metric(server, kAborted, kEndless);
}

TEST(ServerLoad, AClientThatLeavesBeforeItsAnswerIsCancelled) {
  SmallServer server(one_at_a_time());
  RawClient leaves(server.port());
  leaves.send(http_request("POST", "/v1/completions", endless_body(false)));
  wait_for_metric(server, kBegun, kEndless);
  leaves.close();
  wait_for_metric(server, kAborted, kEndless);
}

// A reader that takes nothing gets everything later, and others get theirs meanwhile.
TEST(ServerLoad, ASlowReaderHoldsNobodyUp) {
  HttpOptions http;
  http.max_unsent_bytes = 100;
  SmallServer server({.max_model_len = 4096, .max_num_seqs = 2, .http = http});
  RawClient slow(server.port());
  slow.send(http_request("POST", "/v1/completions", stream_body(4000)));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(fetch(server.port(), "POST", "/v1/completions", stream_body(5)).status, 200);
  const std::string text = text_of_stream(slow.receive().body);
  EXPECT_EQ(text, text_of_stream(fetch(server.port(), "POST", "/v1/completions", stream_body(4000)).body));
}

TEST(ServerLoad, AFullQueueRefuses) {
  SmallServerOptions options = one_at_a_time();
  options.max_num_seqs = 2;
  options.max_requests = kEndless + 1;
  SmallServer server(options);
  RawClient first(server.port());
  first.send(http_request("POST", "/v1/completions", endless_body(true)));
  ASSERT_TRUE(first.wait_for("data: "));
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "a"}, {"n", 2}}).status, 429);
  RawClient last(server.port());
  last.send(http_request("POST", "/v1/completions", stream_body(2)));
  wait_for_metric(server, kBegun, kEndless + 1);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "a"}, {"n", 1}}).status, 429);
}

TEST(ServerLoad, ShutdownFinishesRunningRequests) {
  SmallServer server({.max_model_len = 4096});
  RawClient client(server.port());
  client.send(http_request("POST", "/v1/completions", stream_body(300)));
  ASSERT_TRUE(client.wait_for("data: "));
  server.server().drain();
  server.stop();
  const RawResponse response = client.receive();
  EXPECT_EQ(events_of(response.body).back(), "[DONE]");
  EXPECT_EQ(client.rest(), "");
}

TEST(ServerLoad, ShutdownCancelsAfterItsTime) {
  SmallServerOptions options = one_at_a_time();
  options.shutdown_timeout = std::chrono::milliseconds(0);
  SmallServer server(options);
  RawClient streamed(server.port());
  streamed.send(http_request("POST", "/v1/completions", endless_body(true)));
  ASSERT_TRUE(streamed.wait_for("data: "));
  RawClient whole(server.port());
  whole.send(http_request("POST", "/v1/completions", endless_body(false)));
  wait_for_metric(server, kBegun, 2 * kEndless);
  server.stop();
  EXPECT_THAT(streamed.receive().body, HasSubstr("the server shuts down"));
  EXPECT_EQ(whole.receive().status, 503);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "a"}}).status, 503);
}

}  // namespace
}  // namespace hone::test
