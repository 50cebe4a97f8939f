#include "rendezvous/trainer_link.h"

#include <array>
#include <utility>

#include "core/error.h"

namespace hone {
namespace {

// torch's TCPStore puts a slash before the keys of its users, and counts the ranks that have joined under init/.
constexpr const char* kJoined = "init/";

std::string broadcast_key(int rank, std::int64_t number) { return text_of("/broadcast_from/", rank, "/", number); }

}  // namespace

HostedLink::HostedLink(const std::string& host, std::uint16_t port, const UniqueId& id, std::function<void()> joined)
    : joined_(std::move(joined)) {
  store_ = std::make_unique<StoreServer>(host, port, [this](const StoreServer& store) {
    if (!has_joined_ && store.get(kJoined) && !has_joined_.exchange(true)) joined_();
  });
  store_->set(broadcast_key(0, broadcasts_++), pickle_of(id));
}

bool HostedLink::is_lost() const { return has_joined_ && store_->clients() == 0; }

void HostedLink::barrier(Deadline deadline) {
  // Two ranks announce their arrival under a name that rank 0 chooses, and then their departure. Older versions of vLLM
  // have a barrier in which each rank broadcasts any object: a broadcast of the trainer is its arrival.
  const std::int64_t number = broadcasts_++;
  const std::string name = text_of("barrier_", number);
  const auto key = [&](const char* event, int rank) { return text_of("/", event, "_", name, "_", rank); };
  store_->set(key("arrival", 0), "1");
  store_->set(broadcast_key(0, number), pickle_of(name));
  const std::array<std::string, 2> arrival{key("arrival", 1), broadcast_key(1, trainer_broadcasts_)};
  bool complete = store_->wait_for_any(arrival, deadline);
  if (complete && store_->get(arrival[0])) {
    const std::string departure = key("departure", 1);
    complete = store_->wait_for_any({&departure, 1}, deadline);
    store_->erase(departure);
  } else if (complete) {
    ++trainer_broadcasts_;
  }
  if (!complete) throw Error("the trainer", "has not come to the barrier after a tensor");
  for (const std::string& old : {arrival[0], arrival[1], key("arrival", 0), broadcast_key(0, number)})
    store_->erase(old);
}

void offer_id(StoreServer& store, const UniqueId& id) { store.set(broadcast_key(0, 0), pickle_of(id)); }

JoinedLink::JoinedLink(const std::string& host, std::uint16_t port, Deadline deadline, std::function<bool()> stops)
    : store_(host, port, deadline, std::move(stops)) {
  (void)store_.add(kJoined, 1, deadline);
  id_ = unique_id_from_pickle(store_.get(broadcast_key(0, 0), deadline));
}

}  // namespace hone
