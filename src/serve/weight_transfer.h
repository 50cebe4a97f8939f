// Weights that a running trainer sends over NCCL: the connection to the trainer, and the update that its tensors make.
//
// Two forms are supported. In that of `trl vllm-serve` (TRL 0.16 to 1.10) this process hosts the TCPStore, and each
// tensor is announced by a call that is answered before the tensor is broadcast. In that of vLLM's weight transfer (TRL
// since 1.11) the trainer hosts the store, and one call announces tensors that it broadcasts meanwhile, one by one or
// packed into buffers.
//
// An update lasts from its first call until the trainer ends it. Meanwhile no request is under way: those that have
// begun finish before, others wait. A tensor goes into its place in the weights as it arrives. An update that is given
// up after its first tensor leaves weights that are incomplete until another succeeds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/broadcast_rank.h"
#include "engine/resident_model.h"
#include "model/received_tensors.h"
#include "rendezvous/trainer_link.h"
#include "serve/engine_loop.h"

namespace hone {

// Tensors that vLLM's trainers broadcast as one: consecutive ones, up to the first that makes the buffer longer than
// its limit.
inline constexpr std::size_t kPackedBufferBytes = std::size_t{1} << 30;

struct TrainerAddress {
  std::string host;
  std::uint16_t port = 0;
  std::optional<BroadcastBackend::Id> id = {};  // set: the communicator's id; there is no store
  std::optional<std::size_t> packed = {};       // the limit of packed buffers; unset: tensors come one by one
  // This server's rank, and the ranks of the communicator: the trainer, rank 0, and the servers to which it sends.
  int rank = 1;
  int size = 2;
};

class WeightTransfer {
 public:
  // `model` must outlive the object. A store that is hosted listens on `host`.
  WeightTransfer(const Model& model, BroadcastBackend backend, std::string host);
  WeightTransfer(const WeightTransfer&) = delete;
  WeightTransfer& operator=(const WeightTransfer&) = delete;
  ~WeightTransfer();

  // Throws Error if a tensor does not belong to the model (ReceivedTensors::check). Callable from any thread.
  void check(const TensorNotice& notice) const { tensors_.check(notice); }
  // Throws RequestError if there is no communicator, or it has failed. Callable from any thread.
  void require_communicator() const;

  // The following are called by actions on the engine's thread. They throw Error with the reason if they fail.
  //
  // Hosts a store on this port, in place of an earlier communicator, and returns. `joined` is called on another thread
  // once the trainer has joined; an action should then call join().
  void host(std::uint16_t port, ResidentModel& resident, EngineLoop& loop, std::function<void()> joined);
  // Connects to a trainer's store, in place of an earlier communicator, on a separate thread. `over` is called there
  // with the reason why it failed, or null: an action should then call join().
  void connect(TrainerAddress address, ResidentModel& resident, EngineLoop& loop,
               std::function<void(const std::exception*)> over);
  // Joins the communicator.
  void join();
  // Ends the connection to the trainer. An update that is open ends if every weight has been received; otherwise it is
  // given up.
  void close(ResidentModel& resident, EngineLoop& loop);
  // Returns true between the first and the last call of an update.
  [[nodiscard]] bool is_open() const { return open_; }
  // Returns true if this process hosts the store.
  [[nodiscard]] bool is_host() const { return is_host_; }
  // Begins an update, unless one is open.
  void begin(ResidentModel& resident, EngineLoop& loop);
  // Receives a tensor that has passed check(), in the first form. Ends the update if every weight has been received.
  void receive_one(const TensorNotice& notice, ResidentModel& resident, EngineLoop& loop);
  // Receives announced tensors, in the second form; none: those of the last call with this communicator. If one of them
  // does not belong to the model, receives all, changes nothing, and throws. `packed`: instead of what connect() was
  // given.
  void receive_all(std::vector<TensorNotice> notices, std::optional<std::size_t> packed, ResidentModel& resident,
                   EngineLoop& loop);
  // Ends an update, if one is open: requests continue with the new weights.
  void finish(ResidentModel& resident, EngineLoop& loop);

 private:
  using Clock = std::chrono::steady_clock;

  // Stops and joins the thread of connect().
  void stop_connecting();
  void set_failure(std::string failure);
  [[nodiscard]] std::function<bool()> gives_up_after(std::chrono::seconds limit) const;
  void receive_group(std::span<const TensorNotice> group, bool load, ResidentModel& resident);
  // Ends an update that has failed: if a tensor has been loaded, the weights are incomplete.
  void give_up(std::string_view reason, ResidentModel& resident, EngineLoop& loop);
  void end(EngineLoop& loop);

  ReceivedTensors tensors_;
  const BroadcastBackend backend_;
  const std::string host_;

  mutable std::mutex mutex_;
  std::string failure_ = kNone;            // why there is no communicator; empty: there is one, or it is being made
  std::shared_ptr<JoinedLink> connected_;  // what the thread of connect() has made; guarded by mutex_ like failure_
  std::atomic<bool> stops_ = false;        // connecting
  std::thread connecting_;

  // The rest belongs to the engine's thread.
  std::shared_ptr<TrainerLink> link_;  // null without a store
  bool is_host_ = false;
  TrainerAddress address_;  // with the id of the communicator, once it is known
  std::unique_ptr<BroadcastRank> rank_;
  TensorStaging staging_;
  bool open_ = false;
  Clock::time_point last_call_;  // of the open update
  bool refused_ = false;         // a call of the open update named a tensor that does not belong to the model
  std::vector<TensorNotice> last_;

  static constexpr const char* kNone = "there is no communicator";
};

// Returns the transfer of a server on this device; null if the device has no NCCL, or if the model is a rank's part in
// FP8, whose scales are those of whole tensors.
[[nodiscard]] std::shared_ptr<WeightTransfer> make_weight_transfer(const Model& model, Device& device,
                                                                   const std::string& host);

}  // namespace hone
