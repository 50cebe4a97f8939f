#include "serve/replicas.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "core/strings.h"
#include "serve/request_error.h"
#include "serve/routes.h"

namespace hone {
namespace {

// The answers of all replicas to one request, from which it makes one.
class Answers {
 public:
  Answers(std::shared_ptr<ServerReply> reply, std::size_t replicas, bool merges)
      : reply_(std::move(reply)), answers_(replicas), left_(replicas), merges_(merges) {}

  void add(std::size_t replica, ServerResponse answer) {
    const std::lock_guard lock(mutex_);
    answers_[replica] = std::move(answer);
    if (--left_ > 0) return;
    const auto refusal = std::ranges::find_if(answers_, [](const auto& each) { return each.status != 200; });
    if (refusal != answers_.end()) return reply_->send(std::move(*refusal));
    if (merges_) {
      std::vector<std::string> texts;
      texts.reserve(answers_.size());
      for (ServerResponse& each : answers_) texts.push_back(std::move(each.body));
      answers_.front().body = merged_metrics(texts);
    }
    reply_->send(std::move(answers_.front()));
  }
  [[nodiscard]] bool left() const { return reply_->left(); }

 private:
  std::mutex mutex_;
  std::shared_ptr<ServerReply> reply_;
  std::vector<ServerResponse> answers_;  // [replicas]
  std::size_t left_;                     // answers that have not come
  const bool merges_;                    // the answers are metrics
};

// The place of one replica's answer in Answers.
class PartOfAnswers final : public ServerReply {
 public:
  PartOfAnswers(std::shared_ptr<Answers> answers, std::size_t replica)
      : answers_(std::move(answers)), replica_(replica) {}
  ~PartOfAnswers() override {
    if (!sent_) PartOfAnswers::send({.status = 502, .body = error_body("a replica gave no answer", {}, 502)});
  }

  void send(ServerResponse response) override {
    sent_ = true;
    answers_->add(replica_, std::move(response));
  }
  void begin_events() override {}  // none of these endpoints streams
  void write(std::string_view) override {}
  void end() override {}
  [[nodiscard]] bool left() const override { return answers_->left(); }
  [[nodiscard]] bool congested() const override { return false; }

 private:
  std::shared_ptr<Answers> answers_;
  std::size_t replica_;
  bool sent_ = false;
};

}  // namespace

void ReplicaFront::handle(ServerRequest request, std::shared_ptr<ServerReply> reply) {
  const Route* const route = route_of(request);
  const bool is_metrics = route != nullptr && route->path == "/metrics";
  const bool concerns_all =
      is_metrics || (route != nullptr && (route->access == Access::kControl || route->path == "/health"));
  if (concerns_all) return send_to_all(request, reply, is_metrics);
  const std::size_t replica = shared_->begin_on_least_busy();
  forward_(replica, std::move(request), std::move(reply), [shared = shared_, replica] { shared->end(replica); });
}

void ReplicaFront::send_to_all(const ServerRequest& request, const std::shared_ptr<ServerReply>& reply, bool merges) {
  const std::size_t replicas = shared_->under_way.size();
  const auto answers = std::make_shared<Answers>(reply, replicas, merges);
  for (std::size_t r = 0; r < replicas; ++r) {
    forward_(r, request, std::make_shared<PartOfAnswers>(answers, r), [] {});
  }
}

std::size_t ReplicaFront::Shared::begin_on_least_busy() {
  const std::lock_guard lock(mutex);
  const auto least = std::ranges::min_element(under_way);
  ++*least;
  return static_cast<std::size_t>(least - under_way.begin());
}

void ReplicaFront::Shared::end(std::size_t replica) {
  const std::lock_guard lock(mutex);
  --under_way[replica];
}

std::string merged_metrics(const std::vector<std::string>& texts) {
  struct MetricFamily {
    std::string comments;  // HELP and TYPE
    std::string samples;
  };
  std::vector<std::string> order;
  std::map<std::string, MetricFamily> families;
  for (const std::string& text : texts) {
    MetricFamily* family = nullptr;
    for (const std::string& line : split(text, '\n')) {
      if (line.empty()) continue;
      if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) {
        const std::string name = split(line, ' ').at(2);
        if (!families.contains(name)) order.push_back(name);
        family = &families[name];
        if (family->comments.find(line) == std::string::npos) family->comments += line + "\n";
      } else if (family != nullptr) {
        family->samples += line + "\n";
      }
    }
  }
  std::string merged;
  for (const std::string& name : order) merged += families[name].comments + families[name].samples;
  return merged;
}

}  // namespace hone
