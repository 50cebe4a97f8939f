// The endpoints of `hone serve`: finds the one that a request is for, and answers whatever goes wrong with an error
// object.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "http/message.h"
#include "serve/engine_loop.h"
#include "serve/served_model.h"
#include "serve/server_metrics.h"
#include "serve/weight_transfer.h"

namespace hone {

struct ServiceOptions {
  std::string version;
  std::string api_key;                            // empty: none is required
  bool allow_weight_updates = false;              // endpoints that move weights, pause and forget are not refused
  bool page = true;                               // send the web page at /
  std::filesystem::path runs = {};                // folder of runs that the page shows; empty: none
  std::shared_ptr<WeightTransfer> transfer = {};  // weights over NCCL; null: the device has none
};

class Service {
 public:
  // The model, the loop and the metrics must outlive the service.
  Service(const ServedModel& model, EngineLoop& loop, const ServerMetrics& metrics, ServiceOptions options)
      : model_(model), loop_(loop), metrics_(metrics), options_(std::move(options)) {}

  // Answers a request, now or later. Never throws. Thread-safe.
  void handle(const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) const;

  [[nodiscard]] const ServedModel& model() const { return model_; }
  [[nodiscard]] const ServerMetrics& metrics() const { return metrics_; }
  [[nodiscard]] const ServiceOptions& options() const { return options_; }
  [[nodiscard]] EngineLoop& loop() const { return loop_; }
  // Queue a job. Throw RequestError if the queue is full (429) or the server shuts down (503).
  void submit(GenerationJob job) const;
  void submit(EmbeddingJob job) const;
  // Queues an action. Throws RequestError if the server shuts down (503).
  void submit(EngineAction action) const;

 private:
  void route(const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) const;
  void check_key(const ServerRequest& request) const;
  void check_control(const ServerRequest& request) const;
  static void check(Admission admission);

  const ServedModel& model_;
  EngineLoop& loop_;
  const ServerMetrics& metrics_;
  ServiceOptions options_;
};

}  // namespace hone
