#include "engine/engine_group.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <typeinfo>
#include <utility>
#include <vector>

#include "backend/collective.h"
#include "model/tensor_parallel_model.h"

namespace hone {
namespace {

// The beginning of an order. An order that fits travels in one exchange: two ranks agree on the bytes of an exchange
// beforehand.
struct OrderHead {
  GroupOrder order = GroupOrder::kEnd;
  std::uint64_t bytes = 0;  // of the content
};
constexpr std::size_t kFrameBytes = std::size_t{16} << 10;  // of the head and what of the content has room
constexpr std::size_t kFirstBytes = kFrameBytes - sizeof(OrderHead);

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::span<std::byte> bytes_of(std::string& text) { return std::as_writable_bytes(std::span(text)); }

// Calls act() and returns the Error that it throws, if any.
std::exception_ptr error_of(const std::function<void()>& act, std::string& message) {
  try {
    act();
  } catch (const Error& error) {
    if (typeid(error) == typeid(JobFailure)) throw;
    message = error.what();
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

EngineGroup::EngineGroup(Device& device, Peers& peers)
    : device_(&device),
      peers_(peers),
      ranks_(static_cast<std::size_t>(peers.size())),
      collective_(make_collective(device, peers)),
      scope_(std::make_unique<CollectiveScope>(nullptr, collective_.get())) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
}

EngineGroup::EngineGroup(Peers& peers, std::vector<int> ranks) : peers_(peers), ranks_(std::move(ranks)) {}

EngineGroup::~EngineGroup() = default;

std::unique_ptr<Model> EngineGroup::part_of(std::unique_ptr<Model> whole) const {
  return std::make_unique<TensorParallelModel>(std::move(whole), peers_.rank(), size());
}

void EngineGroup::send(GroupOrder order, std::string_view content) {
  HONE_ASSERT(leads(), "rank ", peers_.rank(), " gives orders");
  const OrderHead head{order, content.size()};
  frame_.assign(kFrameBytes, '\0');
  std::memcpy(frame_.data(), &head, sizeof head);
  const std::size_t first = std::min(content.size(), kFirstBytes);
  if (first > 0) std::memcpy(frame_.data() + sizeof head, content.data(), first);
  const auto send_to_all = [&](std::string_view text) {
    std::vector<Peers::Transfer> transfers;
    for (const int rank : std::span(ranks_).subspan(1))
      transfers.push_back({.peer = rank, .out = bytes_of(text), .in = {}});
    peers_.exchange(transfers);
  };
  send_to_all(frame_);
  if (first < content.size()) send_to_all(content.substr(first));
}

void EngineGroup::send_run(GroupOrder order, std::size_t program, std::string_view changes) {
  runs_ = true;
  std::string content(reinterpret_cast<const char*>(&program), sizeof program);
  send(order, content.append(changes));
}

void EngineGroup::settle() {
  if (std::exchange(runs_, false)) send(GroupOrder::kSettle);
}

void EngineGroup::check() const {
  if (peers_.has_lost_one()) peers_.throw_lost();
}

EngineGroup::Received EngineGroup::receive() {
  const int first_rank = ranks_.front();
  if (collective_ != nullptr) peers_.wait_for(first_rank);  // a server may have nothing to do for long
  const auto receive_into = [&](std::span<std::byte> bytes) {
    const Peers::Transfer transfer{.peer = first_rank, .out = {}, .in = bytes};
    peers_.exchange({&transfer, 1});
  };
  frame_.resize(kFrameBytes);
  receive_into(bytes_of(frame_));
  OrderHead head;
  std::memcpy(&head, frame_.data(), sizeof head);
  Received received{.order = head.order, .content = std::string(head.bytes, '\0')};
  const std::size_t first = std::min(received.content.size(), kFirstBytes);
  if (first > 0) std::memcpy(received.content.data(), frame_.data() + sizeof head, first);
  if (first < received.content.size()) receive_into(bytes_of(received.content).subspan(first));
  return received;
}

std::int64_t EngineGroup::least(std::int64_t value) {
  HONE_ASSERT(value >= 0 && value < std::int64_t{1} << 53, value, " is not exact as a double");
  double largest = -static_cast<double>(value);
  peers_.maximum({&largest, 1});
  return static_cast<std::int64_t>(-largest);
}

void EngineGroup::share(std::byte* data, std::size_t bytes) {
  collective_->broadcast(data, bytes, 0);
  device_->synchronize();
  check_operations();
}

std::exception_ptr EngineGroup::together(const std::function<void()>& act) {
  std::string message;
  std::exception_ptr mine = error_of(act, message);
  const std::vector<std::string> messages = peers_.gather(message);
  if (mine) return mine;
  for (int rank = 0; rank < size(); ++rank) {
    const std::string& text = messages[static_cast<std::size_t>(rank)];
    if (!text.empty()) return std::make_exception_ptr(Error(peers_.name_of(rank), text));
  }
  return nullptr;
}

std::exception_ptr run_together(EngineGroup* group, const std::function<void()>& act) {
  if (group != nullptr) return group->together(act);
  std::string message;
  return error_of(act, message);
}

}  // namespace hone
