// A server on loopback with a small model of random weights.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/resident_model.h"
#include "http/server.h"
#include "model/lora.h"
#include "model/model.h"
#include "serve/service.h"
#include "support/raw_client.h"

namespace hone::test {

struct SmallServerOptions {
  std::int64_t max_model_len = 256;
  std::int64_t max_num_seqs = 8;
  std::int64_t max_requests = 1000;
  std::int64_t num_blocks = 0;  // of the KV cache, of 16 tokens; 0: enough for max_num_seqs completions
  std::string api_key = {};
  bool allow_weight_updates = false;
  std::int64_t adapter_slots = 0;
  std::optional<Pooling> embeddings = std::nullopt;
  bool is_matryoshka = false;
  bool page = true;
  std::filesystem::path runs = {};
  std::optional<BroadcastBackend> broadcasts = std::nullopt;  // unset: weights cannot come from a trainer
  std::string generation_config = "{}";
  std::string chat_template = {};  // empty: ChatML
  std::chrono::milliseconds shutdown_timeout = std::chrono::hours(1);
  HttpOptions http = {};
};

class SmallServer {
 public:
  explicit SmallServer(SmallServerOptions options = {});
  SmallServer(const SmallServer&) = delete;
  SmallServer& operator=(const SmallServer&) = delete;
  ~SmallServer();

  [[nodiscard]] std::uint16_t port() const { return server_->port(); }
  [[nodiscard]] HttpServer& server() { return *server_; }
  [[nodiscard]] const ServedModel& model() const { return served_; }
  // The embeddings of these inputs, each computed alone by another embedder.
  [[nodiscard]] std::vector<std::vector<float>> embedded(const std::vector<std::vector<TokenId>>& inputs,
                                                         std::uint64_t seed = 1) const;
  // The model's own completion of a request, from another engine; `seed` is that of its random weights.
  [[nodiscard]] Completion generated(const Request& request, std::uint64_t seed = 1);
  // Writes a folder of the same model with other random weights. `change` may edit its config.json.
  void write_weights(const std::filesystem::path& folder, std::uint64_t seed,
                     const std::function<void(Json& config)>& change = {}) const;
  // Writes an adapter of the model with random values.
  void write_adapter(const std::filesystem::path& folder, const LoraConfig& config, std::uint64_t seed) const;
  // The completion of a request by the base model with that adapter, not merged, as trainers compute it.
  [[nodiscard]] Completion adapted(const Request& request, const LoraConfig& config, std::uint64_t seed) const;
  [[nodiscard]] ResidentModel& resident() { return *resident_; }
  [[nodiscard]] RawResponse post(std::string_view path, const Json& body) const;
  // Stops the loop of the engine; running requests may finish within shutdown_timeout.
  void stop();

 private:
  [[nodiscard]] EngineOptions engine_options() const;
  [[nodiscard]] EngineOptions plain_options() const;  // without slots
  [[nodiscard]] std::optional<EmbedderOptions> embedder_options() const;
  // Runs work that uses the device, on the engine's thread if it is a GPU: that serves one thread at a time, and an
  // engine may have begun a step that no answer waits for.
  void on_device(const std::function<void()>& work) const;
  // Runs what on_device() has left for the engine's thread.
  void run_work();

  SmallServerOptions options_;
  std::unique_ptr<Model> network_;
  ServedModel served_;
  std::unique_ptr<ResidentModel> resident_;
  ServerMetrics metrics_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> server_;
  mutable std::mutex mutex_;
  mutable std::condition_variable done_;
  mutable const std::function<void()>* work_ = nullptr;  // null: none
  std::atomic<bool> stops_ = false;
  std::thread engine_thread_;
};

// The data of the events of a stream, in order.
[[nodiscard]] std::vector<std::string> events_of(const std::string& stream);

}  // namespace hone::test
