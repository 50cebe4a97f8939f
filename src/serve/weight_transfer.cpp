#include "serve/weight_transfer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "backend/gpu_collective.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "model/fp8_model.h"
#include "serve/request_error.h"

namespace hone {
namespace {

constexpr std::chrono::seconds kStoreLimit{120};        // for the trainer's id, on a separate thread
constexpr std::chrono::seconds kCommunicatorLimit{60};  // the engine waits for it
constexpr std::chrono::seconds kTensorLimit{600};
constexpr std::chrono::seconds kBarrierLimit{60};

constexpr const char* kFix = "initialize the communicator again";

}  // namespace

WeightTransfer::WeightTransfer(const Model& model, BroadcastBackend backend, std::string host)
    : tensors_(model), backend_(std::move(backend)), host_(std::move(host)) {}

WeightTransfer::~WeightTransfer() { stop_connecting(); }

void WeightTransfer::stop_connecting() {
  stops_ = true;
  if (connecting_.joinable()) connecting_.join();
  stops_ = false;
}

void WeightTransfer::require_communicator() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw RequestError({}, failure_, kFix, 409);
}

void WeightTransfer::set_failure(std::string failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
}

void WeightTransfer::host(std::uint16_t port, ResidentModel& resident, EngineLoop& loop, std::function<void()> joined) {
  close(resident, loop);
  const BroadcastBackend::Id id = backend_.make_id();
  link_ = std::make_shared<HostedLink>(host_, port, id, std::move(joined));
  is_host_ = true;
  address_ = {.id = id, .rank = 0, .size = 2};
  set_failure({});
}

void WeightTransfer::connect(TrainerAddress address, ResidentModel& resident, EngineLoop& loop,
                             std::function<void(const std::exception*)> over) {
  close(resident, loop);
  address_ = std::move(address);
  is_host_ = false;
  set_failure({});
  if (address_.id) return over(nullptr);
  connecting_ = std::thread([this, to = address_, over = std::move(over)] {
    try {
      auto link = std::make_shared<JoinedLink>(to.host, to.port, Clock::now() + kStoreLimit,
                                               [this] { return stops_ || interrupted(); });
      {
        const std::lock_guard lock(mutex_);
        connected_ = std::move(link);
      }
      over(nullptr);
    } catch (const Error& error) {
      set_failure(error.what());
      over(&error);
    }
  });
}

void WeightTransfer::close(ResidentModel& resident, EngineLoop& loop) {
  stop_connecting();
  if (open_ && tensors_.has_all() && !refused_) finish(resident, loop);
  if (open_) give_up("its communicator has been closed", resident, loop);
  rank_.reset();
  address_ = {};
  last_.clear();
  link_.reset();
  connected_.reset();
  set_failure(kNone);
}

std::function<bool()> WeightTransfer::gives_up_after(std::chrono::seconds limit) const {
  return [link = link_, deadline = Clock::now() + limit] {
    return Clock::now() > deadline || interrupted() || (link && link->is_lost());
  };
}

void WeightTransfer::join() {
  {
    const std::lock_guard lock(mutex_);
    if (connected_) {
      address_.id = connected_->id();
      link_ = std::move(connected_);
    }
  }
  if (!address_.id) throw RequestError({}, "the communicator has been closed meanwhile", kFix, 409);
  rank_.reset();
  try {
    rank_ = backend_.join(*address_.id, address_.rank, address_.size, gives_up_after(kCommunicatorLimit));
  } catch (const Error& error) {
    set_failure(error.what());
    throw;
  }
}

void WeightTransfer::begin(ResidentModel& resident, EngineLoop& loop) {
  if (open_) return;
  require_communicator();
  if (!rank_) throw RequestError({}, "the trainer has not joined the communicator", "wait for its initialization", 409);
  if (!resident.has_weights()) throw RequestError({}, "the weights are asleep", "wake up the weights first", 409);
  tensors_.begin();
  open_ = true;
  refused_ = false;
  last_call_ = Clock::now();
  loop.hold([this, &loop](ResidentModel& held) {
    if (link_ && link_->is_lost()) return give_up("the trainer has left", held, loop);
    if (Clock::now() > last_call_ + kTensorLimit) give_up("the trainer has sent nothing for ten minutes", held, loop);
  });
}

void WeightTransfer::receive_group(std::span<const TensorNotice> group, bool load, ResidentModel& resident) {
  last_call_ = Clock::now();
  const std::size_t bytes = bytes_of(group);
  if (bytes == 0) return;
  std::byte* const data = staging_.room_for(bytes, resident.weights().device());
  rank_->broadcast(data, bytes, is_host_ ? 1 : 0, gives_up_after(kTensorLimit));
  if (link_) link_->barrier(Clock::now() + kBarrierLimit);
  if (load) resident.load(tensors_, group, data);
  last_call_ = Clock::now();
}

void WeightTransfer::receive_one(const TensorNotice& notice, ResidentModel& resident, EngineLoop& loop) {
  try {
    begin(resident, loop);
    receive_group({&notice, 1}, true, resident);
  } catch (const Error& error) {
    give_up(error.what(), resident, loop);
    throw;
  }
  if (tensors_.has_all()) finish(resident, loop);
}

void WeightTransfer::receive_all(std::vector<TensorNotice> notices, std::optional<std::size_t> packed,
                                 ResidentModel& resident, EngineLoop& loop) {
  if (notices.empty() && last_.empty())
    throw RequestError("update_info.names", "is empty, and no call since the communicator began has named tensors",
                       "name the tensors");
  const bool is_whole_update = !open_;
  begin(resident, loop);
  if (!notices.empty()) last_ = std::move(notices);
  std::string refusal;
  try {
    for (const TensorNotice& notice : last_) check(notice);
  } catch (const Error& error) {
    refusal = error.what();
    refused_ = true;
  }
  const std::optional<std::size_t> limit = packed ? packed : address_.packed;
  try {
    for (std::span<const TensorNotice> rest(last_); !rest.empty();) {
      const std::size_t count = limit ? packed_count(rest, *limit) : 1;
      receive_group(rest.first(count), refusal.empty(), resident);
      rest = rest.subspan(count);
    }
  } catch (const Error& error) {
    give_up(error.what(), resident, loop);
    throw;
  }
  if (is_whole_update) finish(resident, loop);
  if (!refusal.empty()) throw Error(refusal);
}

void WeightTransfer::finish(ResidentModel& resident, EngineLoop& loop) {
  if (!open_) return;
  if (tensors_.has_any()) {
    resident.weights().device().synchronize();
    resident.weights_changed(!refused_ && (resident.has_whole_weights() || tensors_.has_all()));
  }
  const bool is_refused = std::exchange(refused_, false);
  const bool has_any = tensors_.has_any();
  end(loop);
  if (has_any && !resident.has_whole_weights())
    throw RequestError({},
                       is_refused ? "the weights are incomplete: a tensor of the update was refused"
                                  : "the weights are incomplete: tensors are missing",
                       "repeat the update", 500);
}

void WeightTransfer::give_up(std::string_view reason, ResidentModel& resident, EngineLoop& loop) {
  log_warning(text_of("an update of the weights is given up: ", reason));
  set_failure(text_of("the communicator has failed: ", reason));
  rank_.reset();
  if (tensors_.has_any()) resident.weights_changed(false);
  end(loop);
}

void WeightTransfer::end(EngineLoop& loop) {
  open_ = false;
  tensors_.begin();
  staging_.release();
  loop.release();
}

std::shared_ptr<WeightTransfer> make_weight_transfer(const Model& model, Device& device, const std::string& host) {
  if (device.kind() != DeviceKind::kCuda) return nullptr;
  if (&model.whole() != &model && std::ranges::any_of(model.weights(), is_fp8_block)) return nullptr;
  return std::make_shared<WeightTransfer>(model, gpu_broadcasts(device), host);
}

}  // namespace hone
