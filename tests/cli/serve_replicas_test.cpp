// Tests hone serve with several replicas as a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "cli/program.h"
#include "cli/server_program.h"
#include "cli/small_model.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/paths.h"
#include "support/raw_client.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

class ServeReplicas : public SmallModelTest {
 protected:
  [[nodiscard]] static Json completion(std::uint16_t port, int seed) {
    const Json body{{"prompt", "What is"}, {"max_tokens", 20}, {"temperature", 1}, {"seed", seed}, {"logprobs", 1}};
    const RawResponse response = fetch(port, "POST", "/v1/completions", body.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body)["choices"];
  }
  // Returns the number of completions that a replica has begun.
  [[nodiscard]] static std::int64_t begun_by(std::uint16_t port, int replica) {
    const std::string metrics = fetch(port, "GET", "/metrics").body;
    const std::string name =
        text_of("\nvllm:request_params_max_tokens_count{model_name=\"", at("model"), "\",engine=\"", replica, "\"} ");
    const std::size_t place = metrics.find(name);
    EXPECT_NE(place, std::string::npos) << metrics;
    return place == std::string::npos ? -1 : std::stoll(metrics.substr(place + name.size()));
  }
  // Keeps a request under way, without its answer.
  static void begin_long(RawClient& client) {
    const Json body{{"prompt", "What is"}, {"max_tokens", 200}, {"ignore_eos", true}, {"n", 64}, {"stream", true}};
    client.send(http_request("POST", "/v1/completions", body.dump()));
    ASSERT_TRUE(client.wait_for("data: "));
  }
};

TEST_F(ServeReplicas, AnswerAsOneServerDoesAndShareTheRequests) {
  Json expected = Json::array();
  {
    ServerProgram server(serve({}));
    ASSERT_NE(server.port(), 0) << server.log();
    for (int seed = 0; seed < 3; ++seed) expected.push_back(completion(server.port(), seed));
  }
  ServerProgram server(serve({"--data_parallel_size", "2", "--shutdown_timeout", "0"}));
  ASSERT_NE(server.port(), 0) << server.log();
  EXPECT_THAT(server.log(), HasSubstr("/v1, 2 replicas, each max_model_len "));
  EXPECT_EQ(ranks_of(server.id()).size(), 2U);
  EXPECT_EQ(completion(server.port(), 0), expected[0]);  // by the first replica, which is free
  EXPECT_EQ(begun_by(server.port(), 0), 1);
  while (begun_by(server.port(), 1) == 0) {  // by the second, if the first is still busy
    RawClient busy(server.port());
    begin_long(busy);
    for (int seed = 1; seed < 3; ++seed) EXPECT_EQ(completion(server.port(), seed), expected[seed]);
  }
  EXPECT_EQ(fetch(server.port(), "GET", "/health").status, 200);
  EXPECT_THAT(fetch(server.port(), "GET", "/").body, HasSubstr("<html"));
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.log();
  EXPECT_THAT(server.log(), HasSubstr("POST /v1/completions 200 "));
  const std::string log = server.log();
  EXPECT_EQ(log.find("shutting down"), log.rfind("shutting down")) << log;
}

TEST_F(ServeReplicas, SigtermFinishesRequests) {
  ServerProgram server(serve({"--data_parallel_size", "2", "--shutdown_timeout", "3600"}));
  ASSERT_NE(server.port(), 0) << server.log();
  RawClient first(server.port());
  RawClient second(server.port());
  begin_long(first);
  begin_long(second);
  server.signal(SIGTERM);
  for (RawClient* client : {&first, &second}) {
    const RawResponse response = client->receive();
    EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n")) << response.body;
  }
  EXPECT_EQ(server.wait(), 0) << server.log();
}

TEST_F(ServeReplicas, ControlReachesAllOfThem) {
  ServerProgram server(serve({"--data_parallel_size", "2", "--allow_weight_updates", "--api_key", "secret"}));
  ASSERT_NE(server.port(), 0) << server.log();
  const std::string key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(fetch(server.port(), "POST", "/sleep").status, 401);
  EXPECT_EQ(fetch(server.port(), "POST", "/sleep", {}, key).status, 200);
  EXPECT_THAT(fetch(server.port(), "GET", "/is_sleeping", {}, key).body, HasSubstr("true"));
  EXPECT_EQ(fetch(server.port(), "POST", "/wake_up", {}, key).status, 200);
  const Json body{{"update_info", {{"weights_path", at("none")}}}};
  const std::string type = "Content-Type: application/json\r\n";
  EXPECT_EQ(fetch(server.port(), "POST", "/update_weights", body.dump(), key).status, 400);
  const RawResponse refused = fetch(server.port(), "POST", "/init_communicator", "{}", key);
  EXPECT_EQ(refused.status, 501) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("without data_parallel_size"));
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.log();
}

TEST_F(ServeReplicas, DivideEachLayerToo) {
  ServerProgram server(serve({"--data_parallel_size", "2", "--tensor_parallel_size", "2"}));
  ASSERT_NE(server.port(), 0) << server.log();
  std::size_t ranks = 0;
  for (const pid_t replica : ranks_of(server.id())) ranks += ranks_of(replica).size();
  EXPECT_EQ(ranks, 4U);
  EXPECT_EQ(completion(server.port(), 1)[0]["finish_reason"], "length");
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.log();
}

TEST_F(ServeReplicas, TheEndOfOneEndsTheServer) {
  ServerProgram server(serve({"--data_parallel_size", "2"}));
  ASSERT_NE(server.port(), 0) << server.log();
  RawClient client(server.port());
  begin_long(client);
  ::kill(ranks_of(server.id()).at(0), SIGKILL);
  EXPECT_EQ(server.wait(), 1);
  EXPECT_THAT(server.log(), HasSubstr("replica 0: was ended by signal 9 (Killed)"));
  EXPECT_EQ(client.rest().find("[DONE]"), std::string::npos);
}

TEST_F(ServeReplicas, AMistakeIsReportedOnce) {
  const Ended ended = run_program(serve({"--data_parallel_size", "3", "--max_model_len", "100000"}));
  EXPECT_EQ(ended.code, 1);
  const std::size_t place = ended.output.find("max_model_len");
  EXPECT_NE(place, std::string::npos) << ended.output;
  std::size_t lines = 0;
  for (const std::string& line : split(ended.output, '\n')) lines += line.starts_with("hone: error") ? 1 : 0;
  EXPECT_EQ(lines, 1U) << ended.output;
}

}  // namespace
}  // namespace hone::test
