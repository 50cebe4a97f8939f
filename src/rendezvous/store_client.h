// A client of a TCPStore that another process hosts.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/descriptor.h"
#include "rendezvous/store_protocol.h"

namespace hone {

class StoreClient {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Connects, trying again until the deadline while connections are refused. `stops`, if given, is called meanwhile and
  // while an answer is awaited; once it returns true, Error is thrown. Throws Error as well if the store cannot be
  // reached or does not answer in time; so do the other functions if it has closed the connection.
  StoreClient(const std::string& host, std::uint16_t port, Deadline deadline, std::function<bool()> stops = {});

  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline);
  void set(std::string_view key, std::string_view value);
  // Waits until the key exists and returns its value.
  [[nodiscard]] std::string get(std::string_view key, Deadline deadline);
  // Returns true if the other end has closed the connection. Callable from any thread.
  [[nodiscard]] bool is_closed() const;

 private:
  void send(const StoreRequest& request);
  // Reads as many bytes of an answer.
  [[nodiscard]] std::string receive(std::size_t bytes, Deadline deadline);

  std::string name_;  // HOST:PORT
  std::function<bool()> stops_;
  Descriptor socket_;
};

}  // namespace hone
