#include "rl/weight_sender.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "core/interrupt.h"
#include "core/json_value.h"
#include "hub/url.h"
#include "rendezvous/trainer_link.h"
#include "system/sockets.h"

namespace hone {
namespace {

// A server's own reason why it fails is better than that of the broadcast that fails with it.
constexpr std::chrono::seconds kPatience{5};

EndpointOptions once(EndpointOptions options, const std::atomic<bool>& cancelled) {
  options.retries = 0;
  options.patience = std::chrono::milliseconds(0);
  options.cancelled = &cancelled;
  return options;
}

sockaddr_in address_of(const std::string& server) {
  const std::optional<Url> url = Url::parse(server);
  HONE_ASSERT(url, server, " is not a URL");
  return ipv4_address(url->host(), 0, server);
}

bool is_loopback(const sockaddr_in& address) { return (ntohl(address.sin_addr.s_addr) >> 24) == 127; }

std::string type_name(StoredType type) {
  HONE_ASSERT(type == StoredType::kBf16 || type == StoredType::kF32, "a weight has the type ", name_of(type));
  return type == StoredType::kBf16 ? "bfloat16" : "float32";
}

}  // namespace

WeightSender::WeightSender(BroadcastBackend backend, std::vector<std::string> servers, EndpointOptions endpoint,
                           const PackedLimits& packed)
    : backend_(std::move(backend)),
      servers_(std::move(servers)),
      packed_(packed),
      limit_(endpoint.timeout),
      client_(once(std::move(endpoint), cancelled_)) {}

void WeightSender::give_up() {
  rank_.reset();
  store_.reset();
  staging_ = Buffer();
}

void WeightSender::connect() {
  if (rank_ != nullptr) return;
  try {
    make_communicator();
  } catch (...) {
    give_up();
    throw;
  }
}

void WeightSender::send(SentTensors& tensors) {
  connect();
  try {
    const auto nothing = [](std::size_t) { return Json::object(); };
    call_all("/start_weight_update", nothing);
    for (const Announcement& announcement : announcements_of(tensors.notices())) {
      const Json info = body_of(announcement, tensors.notices());
      call_all(
          "/update_weights", [&](std::size_t) { return Json{{"update_info", info}}; },
          [&](const GivesUp& gives_up) { broadcast(tensors, announcement, gives_up); });
    }
    call_all("/finish_weight_update", nothing);
  } catch (...) {
    give_up();
    throw;
  }
  staging_ = Buffer();
}

void WeightSender::make_communicator() {
  std::vector<std::string> own;  // [servers] this machine's address, as each server reaches it
  bool is_local = true;
  for (const std::string& server : servers_) {
    const sockaddr_in address = address_of(server);
    is_local = is_local && is_loopback(address);
    own.push_back(numbers_of(address_towards(address, server)));
  }
  store_ = std::make_unique<StoreServer>(is_local ? "127.0.0.1" : "0.0.0.0", 0);
  const BroadcastBackend::Id id = backend_.make_id();
  offer_id(*store_, id);
  const int ranks = static_cast<int>(servers_.size()) + 1;
  const auto body = [&](std::size_t server) {
    return Json{{"init_info",
                 {{"master_address", own[server]},
                  {"master_port", store_->port()},
                  {"rank_offset", server + 1},
                  {"world_size", ranks}}}};
  };
  call_all("/init_weight_transfer_engine", body,
           [&](const GivesUp& gives_up) { rank_ = backend_.join(id, 0, ranks, gives_up); });
}

void WeightSender::call_all(const std::string& path, const std::function<Json(std::size_t)>& body,
                            const std::function<void(const GivesUp&)>& work) {
  std::vector<std::exception_ptr> failures(servers_.size());
  std::atomic<std::size_t> open = servers_.size();
  const auto post = [&](std::size_t server) {
    try {
      const std::string url = servers_[server] + path;
      const std::string refusal = client_.post(url, body(server).dump(), "acknowledgement", [](const std::string&) {});
      if (!refusal.empty()) throw Error(url, refusal);
    } catch (const Cancelled&) {
      return;  // another server has failed
    } catch (...) {
      failures[server] = std::current_exception();
      cancelled_ = true;
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(servers_.size());
  for (std::size_t server = 0; server < servers_.size(); ++server) {
    threads.emplace_back([&, server] {
      post(server);
      --open;
    });
  }
  std::exception_ptr failure;
  const GivesUp gives_up = [&, deadline = Clock::now() + limit_ + kPatience] {
    return cancelled_ || interrupted() || Clock::now() > deadline;
  };
  try {
    if (work) work(gives_up);
  } catch (...) {
    failure = std::current_exception();
    const Clock::time_point end = Clock::now() + kPatience;
    while (open > 0 && !cancelled_ && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    cancelled_ = true;
  }
  for (std::thread& thread : threads) thread.join();
  cancelled_ = false;
  throw_if_interrupted();
  for (const std::exception_ptr& of_server : failures) {
    if (of_server) std::rethrow_exception(of_server);
  }
  if (failure) std::rethrow_exception(failure);
}

std::vector<WeightSender::Announcement> WeightSender::announcements_of(const std::vector<TensorNotice>& notices) const {
  Announcement large;
  Announcement small{.tensors = {}, .is_packed = true};
  for (std::size_t i = 0; i < notices.size(); ++i)
    (notices[i].bytes() < packed_.tensor_bytes ? small : large).tensors.push_back(i);
  std::vector<Announcement> announcements;
  for (Announcement* each : {&large, &small}) {
    if (!each->tensors.empty()) announcements.push_back(std::move(*each));
  }
  return announcements;
}

Json WeightSender::body_of(const Announcement& announcement, const std::vector<TensorNotice>& notices) const {
  Json info{{"names", Json::array()}, {"dtype_names", Json::array()}, {"shapes", Json::array()}};
  for (const std::size_t i : announcement.tensors) {
    info["names"].push_back(notices[i].name);
    info["dtype_names"].push_back(type_name(notices[i].type));
    info["shapes"].push_back(notices[i].shape);
  }
  info["packed"] = announcement.is_packed;
  if (announcement.is_packed) info["packed_buffer_size_bytes"] = packed_.buffer_bytes;
  return info;
}

void WeightSender::broadcast(SentTensors& tensors, const Announcement& announcement, const GivesUp& gives_up) {
  if (announcement.is_packed) return broadcast_packed(tensors, announcement, gives_up);
  for (const std::size_t i : announcement.tensors) {
    const std::size_t bytes = tensors.notices()[i].bytes();
    std::byte* data = tensors.in_place(i);
    if (data == nullptr) {
      data = staging(bytes, tensors.device());
      tensors.copy(i, data);
    }
    rank_->broadcast(data, bytes, 0, gives_up);
  }
}

void WeightSender::broadcast_packed(SentTensors& tensors, const Announcement& announcement, const GivesUp& gives_up) {
  const std::vector<std::size_t>& all = announcement.tensors;
  std::byte* const buffer = staging(packed_.buffer_bytes + packed_.tensor_bytes, tensors.device());
  std::size_t filled = 0;
  for (std::size_t at = 0; at < all.size(); ++at) {
    tensors.copy(all[at], buffer + filled);
    filled += tensors.notices()[all[at]].bytes();
    if (filled <= packed_.buffer_bytes && at + 1 < all.size()) continue;
    if (filled > 0) rank_->broadcast(buffer, filled, 0, gives_up);
    filled = 0;
  }
}

std::byte* WeightSender::staging(std::size_t bytes, Device& device) {
  if (staging_.size() >= bytes) return staging_.data();
  device.synchronize();
  staging_ = Buffer();
  staging_ = Buffer(device, bytes);
  return staging_.data();
}

}  // namespace hone
