// The connection to a trainer through which both agree on an NCCL communicator: vLLM's StatelessProcessGroup of two
// ranks over a TCPStore. Either this process hosts the store as rank 0 (`trl vllm-serve`, TRL 0.16 to 1.10), or it
// joins the trainer's as rank 1 (vLLM's weight transfer, TRL since 1.11). Source: vllm/distributed/utils.py,
// vllm/distributed/weight_transfer/nccl_common.py.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/pickles.h"
#include "rendezvous/store_client.h"
#include "rendezvous/store_server.h"

namespace hone {

class TrainerLink {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  virtual ~TrainerLink() = default;
  // Returns true if the trainer has joined and has closed its connection since. Callable from any thread.
  [[nodiscard]] virtual bool is_lost() const = 0;
  // Waits until both ranks have called their barrier. Throws Error if the trainer is lost or late.
  virtual void barrier(Deadline deadline) = 0;
};

// Rank 0: offers the id to the trainer, which is rank 1.
class HostedLink final : public TrainerLink {
 public:
  // Listens on host and port. `joined` is called once, on another thread, when the trainer has joined. Throws Error if
  // the port cannot be used.
  HostedLink(const std::string& host, std::uint16_t port, const UniqueId& id, std::function<void()> joined);

  [[nodiscard]] std::uint16_t port() const { return store_->port(); }
  [[nodiscard]] bool is_lost() const override;
  void barrier(Deadline deadline) override;

 private:
  std::atomic<bool> has_joined_ = false;
  std::function<void()> joined_;
  std::int64_t broadcasts_ = 0;          // of this rank
  std::int64_t trainer_broadcasts_ = 0;  // in barriers of older versions
  std::unique_ptr<StoreServer> store_;   // last: its thread uses the others
};

// Offers an id at a store that this process hosts as a trainer, rank 0, to the ranks that join it as JoinedLink does.
void offer_id(StoreServer& store, const UniqueId& id);

// Rank 1: takes the id from the trainer, which is rank 0.
class JoinedLink final : public TrainerLink {
 public:
  // Connects to the trainer's store and waits for its id. Throws Error if that takes longer than the deadline.
  JoinedLink(const std::string& host, std::uint16_t port, Deadline deadline, std::function<bool()> stops);

  [[nodiscard]] const UniqueId& id() const { return id_; }
  [[nodiscard]] bool is_lost() const override { return store_.is_closed(); }
  void barrier(Deadline) override {}  // vLLM's weight transfer has none

 private:
  StoreClient store_;
  UniqueId id_;
};

}  // namespace hone
