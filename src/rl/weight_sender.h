// Sends the weights of a trainer to inference servers over NCCL, in the form of vLLM's weight transfer: this process
// hosts the store at which the servers find the communicator, announces tensors over HTTP, and broadcasts them
// meanwhile. It is rank 0 of the communicator; each server is one of the others.
// Source: vllm/distributed/weight_transfer (nccl_engine.py, packed_tensor.py) of vLLM 0.33.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/broadcast_rank.h"
#include "core/json.h"
#include "endpoint/client.h"
#include "model/sent_tensors.h"
#include "rendezvous/store_server.h"

namespace hone {

// Tensors below tensor_bytes are packed, so that experts and biases do not each take the time of a broadcast. A buffer
// ends with the tensor that makes it longer than buffer_bytes.
struct PackedLimits {
  std::size_t tensor_bytes = std::size_t{4} << 20;
  std::size_t buffer_bytes = std::size_t{64} << 20;
};

class WeightSender {
 public:
  // servers: URLs without /v1, at most kMostStoreClients; server i is rank i + 1. endpoint: limits of each call, none
  // of which is repeated; `cancelled` is replaced. Sends no request.
  WeightSender(BroadcastBackend backend, std::vector<std::string> servers, EndpointOptions endpoint,
               const PackedLimits& packed = {});
  WeightSender(const WeightSender&) = delete;
  WeightSender& operator=(const WeightSender&) = delete;

  // Makes the communicator, unless there is one. Throws as send() does, and if NCCL refuses, as it does for a server on
  // the trainer's own GPU.
  void connect();
  // Replaces the weights of all servers, which then generate with the new ones. Calls connect() before.
  // Takes memory of the device for one tensor at a time, and none for a large one whose elements the weights have
  // as they are sent. Throws Error in one line if a server refuses, fails or is late, and Interrupted on
  // Ctrl+C. The communicator is then given up, and the next call makes another one.
  void send(SentTensors& tensors);

 private:
  using GivesUp = std::function<bool()>;
  using Clock = std::chrono::steady_clock;
  // Tensors that one call announces: indices into SentTensors::notices().
  struct Announcement {
    std::vector<std::size_t> tensors;
    bool is_packed = false;
  };

  void make_communicator();
  void give_up();
  // Posts to all servers concurrently, and meanwhile calls work(gives_up) on this thread, which must end once
  // gives_up() returns true. Throws the first server's failure, or that of `work`.
  void call_all(const std::string& path, const std::function<Json(std::size_t server)>& body,
                const std::function<void(const GivesUp&)>& work = {});
  [[nodiscard]] std::vector<Announcement> announcements_of(const std::vector<TensorNotice>& notices) const;
  [[nodiscard]] Json body_of(const Announcement& announcement, const std::vector<TensorNotice>& notices) const;
  void broadcast(SentTensors& tensors, const Announcement& announcement, const GivesUp& gives_up);
  void broadcast_packed(SentTensors& tensors, const Announcement& announcement, const GivesUp& gives_up);
  [[nodiscard]] std::byte* staging(std::size_t bytes, Device& device);

  const BroadcastBackend backend_;
  const std::vector<std::string> servers_;
  const PackedLimits packed_;
  std::atomic<bool> cancelled_ = false;
  const std::chrono::milliseconds limit_;
  EndpointClient client_;
  std::unique_ptr<StoreServer> store_;   // null: there is no communicator
  std::unique_ptr<BroadcastRank> rank_;  // likewise
  Buffer staging_;
};

}  // namespace hone
