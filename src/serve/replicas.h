// The front of a server with replicas, each of which is a whole server of the same model on separate devices: gives
// each request to one of them, and what concerns all to all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "http/message.h"

namespace hone {

// Sends a request to the replica of that index; its answer goes to `reply`. Calls on_end when nothing of it is under
// way any more.
using ForwardToReplica = std::function<void(std::size_t replica, ServerRequest request,
                                            std::shared_ptr<ServerReply> reply, std::function<void()> on_end)>;

class ReplicaFront {
 public:
  ReplicaFront(std::size_t replicas, ForwardToReplica forward)
      : forward_(std::move(forward)), shared_(std::make_shared<Shared>(replicas)) {}

  // Answers a request, now or later. The replica that has the fewest requests under way gets it, of several the first,
  // so that the turns of a conversation on an idle server reach the prefixes that they share. What controls a server
  // (Access::kControl) goes to all: the answer is the first replica's, or the first refusal. /health is that of all,
  // and /metrics has the samples of all, which their label `engine` tells apart. Thread-safe.
  void handle(ServerRequest request, std::shared_ptr<ServerReply> reply);

 private:
  struct Shared {
    explicit Shared(std::size_t replicas) : under_way(replicas, 0) {}
    [[nodiscard]] std::size_t begin_on_least_busy();
    void end(std::size_t replica);

    std::mutex mutex;
    std::vector<std::int64_t> under_way;  // [replicas] requests
  };

  void send_to_all(const ServerRequest& request, const std::shared_ptr<ServerReply>& reply, bool merges);

  ForwardToReplica forward_;
  std::shared_ptr<Shared> shared_;  // outlives requests under way
};

// Merges metrics in the text form of Prometheus: each family once, with the samples of all texts in their order.
// Source: https://prometheus.io/docs/instrumenting/exposition_formats/
[[nodiscard]] std::string merged_metrics(const std::vector<std::string>& texts);

}  // namespace hone
