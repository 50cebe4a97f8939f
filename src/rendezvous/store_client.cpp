#include "rendezvous/store_client.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "core/error.h"
#include "system/poll.h"
#include "system/sockets.h"
#include "system/streams.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{50};
constexpr std::uint32_t kPingNumber = 0x656e6f68;  // any number

template <class T>
T number_in(const std::string& bytes) {
  T number{};
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

}  // namespace

StoreClient::StoreClient(const std::string& host, std::uint16_t port, Deadline deadline, std::function<bool()> stops)
    : name_(text_of("the store at ", host, ":", port)),
      stops_(std::move(stops)),
      socket_(connect_to(ipv4_address(host, port, name_), name_, "the trainer must listen there", deadline, stops_)) {
  send({.query = StoreQuery::kValidate, .number = kStoreMagic});
  send({.query = StoreQuery::kPing, .number = kPingNumber});
  if (number_in<std::uint32_t>(receive(sizeof(std::uint32_t), deadline)) != kPingNumber)
    throw Error(name_, "does not answer as torch's TCPStore does");
}

void StoreClient::send(const StoreRequest& request) {
  const std::string bytes = bytes_of(request);
  if (!write_all(socket_.number(), bytes)) throw Error(name_, "has closed the connection");
}

std::string StoreClient::receive(std::size_t bytes, Deadline deadline) {
  std::string received;
  while (received.size() < bytes) {
    if (Clock::now() >= deadline || (stops_ && stops_())) throw Error(name_, "does not answer in time");
    if (!wait_readable(socket_.number(), std::min(deadline, Clock::now() + kPause))) continue;
    std::string part(bytes - received.size(), '\0');
    const ssize_t count = ::recv(socket_.number(), part.data(), part.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw Error(name_, "has closed the connection");
    received.append(part, 0, static_cast<std::size_t>(count));
  }
  return received;
}

std::int64_t StoreClient::add(std::string_view key, std::int64_t amount, Deadline deadline) {
  send({.query = StoreQuery::kAdd, .keys = {std::string(key)}, .amount = amount});
  return number_in<std::int64_t>(receive(sizeof(std::int64_t), deadline));
}

void StoreClient::set(std::string_view key, std::string_view value) {
  send({.query = StoreQuery::kSet, .keys = {std::string(key)}, .values = {std::string(value)}});
}

std::string StoreClient::get(std::string_view key, Deadline deadline) {
  send({.query = StoreQuery::kWait, .keys = {std::string(key)}});
  if (receive(1, deadline).front() != static_cast<char>(kStopWaiting)) throw Error(name_, "has cancelled a wait");
  send({.query = StoreQuery::kGet, .keys = {std::string(key)}});
  const auto length = number_in<std::uint64_t>(receive(sizeof(std::uint64_t), deadline));
  if (length > kMostValueBytes) throw Error(name_, text_of("answers with ", length, " bytes"));
  return receive(static_cast<std::size_t>(length), deadline);
}

bool StoreClient::is_closed() const {
  char byte = 0;
  const ssize_t count = ::recv(socket_.number(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace hone
