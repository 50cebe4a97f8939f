// Tests which replica gets which request, and what answers of all replicas become.
#include "serve/replicas.h"

#include <gtest/gtest.h>

#include <utility>

namespace hone::test {
namespace {

// Keeps what a reply was sent.
class AnswerKept final : public ServerReply {
 public:
  void send(ServerResponse response) override { sent.push_back(std::move(response)); }
  void begin_events() override {}
  void write(std::string_view) override {}
  void end() override {}
  [[nodiscard]] bool left() const override { return false; }
  [[nodiscard]] bool congested() const override { return false; }

  std::vector<ServerResponse> sent;
};

struct Forwarded {
  std::size_t replica = 0;
  ServerRequest request;
  std::shared_ptr<ServerReply> reply;
  std::function<void()> on_end;
};

class ReplicaFrontTest : public testing::Test {
 protected:
  std::shared_ptr<AnswerKept> ask(const std::string& method, const std::string& target) {
    auto reply = std::make_shared<AnswerKept>();
    front_.handle({.method = method, .target = target, .headers = {}, .body = {}, .peer = {}}, reply);
    return reply;
  }
  // Ends the request that was forwarded as the i-th.
  void end(std::size_t i) {
    forwarded_[i].reply.reset();
    forwarded_[i].on_end();
  }

  std::vector<Forwarded> forwarded_;

 private:
  ReplicaFront front_{3, [this](std::size_t replica, ServerRequest request, std::shared_ptr<ServerReply> reply,
                                std::function<void()> on_end) {
                        forwarded_.push_back({replica, std::move(request), std::move(reply), std::move(on_end)});
                      }};
};

TEST_F(ReplicaFrontTest, TheLeastBusyReplicaGetsARequest) {
  std::vector<std::size_t> order;
  for (int i = 0; i < 4; ++i) (void)ask("POST", "/v1/completions");
  end(1);
  (void)ask("POST", "/v1/chat/completions");
  end(0);
  end(3);
  (void)ask("GET", "/v1/models");
  (void)ask("GET", "/there/is/no/such/path");
  for (const Forwarded& each : forwarded_) order.push_back(each.replica);
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 0, 1, 0, 0}));
  EXPECT_EQ(forwarded_[5].request.target, "/v1/models");
}

TEST_F(ReplicaFrontTest, WhatControlsAServerGoesToAll) {
  for (const auto& [method, target] : {std::pair("POST", "/sleep?level=1"), std::pair("POST", "/update_weights/"),
                                       std::pair("POST", "/v1/load_lora_adapter"), std::pair("GET", "/health")}) {
    forwarded_.clear();
    const std::shared_ptr<AnswerKept> reply = ask(method, target);
    ASSERT_EQ(forwarded_.size(), 3U) << target;
    for (const std::size_t r : {1, 2, 0}) {
      EXPECT_TRUE(reply->sent.empty());
      EXPECT_EQ(forwarded_[r].replica, r);
      EXPECT_EQ(forwarded_[r].request.target, target);
      forwarded_[r].reply->send({.status = 200, .body = std::to_string(r)});
    }
    ASSERT_EQ(reply->sent.size(), 1U);
    EXPECT_EQ(reply->sent[0].body, "0");
  }
}

TEST_F(ReplicaFrontTest, ARefusalOfOneIsTheAnswer) {
  const std::shared_ptr<AnswerKept> reply = ask("POST", "/update_weights");
  forwarded_[2].reply->send({.status = 400, .body = "no such folder"});
  forwarded_[0].reply->send({.status = 200, .body = "done"});
  forwarded_[1].reply->send({.status = 503, .body = "shuts down"});
  ASSERT_EQ(reply->sent.size(), 1U);
  EXPECT_EQ(reply->sent[0].status, 503);
  EXPECT_EQ(reply->sent[0].body, "shuts down");
}

TEST_F(ReplicaFrontTest, AReplicaWithoutAnAnswerIsARefusal) {
  const std::shared_ptr<AnswerKept> reply = ask("GET", "/health");
  forwarded_[0].reply->send({.status = 200, .body = {}});
  forwarded_[1].reply.reset();
  forwarded_[2].reply->send({.status = 200, .body = {}});
  ASSERT_EQ(reply->sent.size(), 1U);
  EXPECT_EQ(reply->sent[0].status, 502);
}

TEST_F(ReplicaFrontTest, MetricsHaveTheSamplesOfAll) {
  const std::shared_ptr<AnswerKept> reply = ask("GET", "/metrics");
  for (const std::size_t r : {0, 1, 2}) {
    const std::string label = "{engine=\"" + std::to_string(r) + "\"} ";
    forwarded_[r].reply->send({.status = 200,
                               .body = "# HELP a Of a.\n# TYPE a gauge\na" + label + "1\n# HELP b Of b.\n# TYPE b " +
                                       "counter\nb" + label + "2\nb_sum" + label + "3\n",
                               .content_type = "text/plain; version=0.0.4"});
  }
  ASSERT_EQ(reply->sent.size(), 1U);
  EXPECT_EQ(reply->sent[0].content_type, "text/plain; version=0.0.4");
  EXPECT_EQ(reply->sent[0].body,
            "# HELP a Of a.\n# TYPE a gauge\na{engine=\"0\"} 1\na{engine=\"1\"} 1\na{engine=\"2\"} 1\n"
            "# HELP b Of b.\n# TYPE b counter\nb{engine=\"0\"} 2\nb_sum{engine=\"0\"} 3\n"
            "b{engine=\"1\"} 2\nb_sum{engine=\"1\"} 3\nb{engine=\"2\"} 2\nb_sum{engine=\"2\"} 3\n");
}

}  // namespace
}  // namespace hone::test
