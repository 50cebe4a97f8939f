// A TCPStore that this process hosts: a thread serves torch's clients.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/descriptor.h"
#include "rendezvous/store_state.h"
#include "system/sockets.h"
#include "system/streams.h"

namespace hone {

inline constexpr std::size_t kMostStoreClients = 16;
// A connection that has not begun as torch's do after this time is closed, so that it takes no trainer's place.
inline constexpr std::chrono::milliseconds kStoreHelloLimit{5000};

class StoreServer {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Listens on an IPv4 address or a name that has one, and a port; 0: any. Throws Error if that is not possible.
  // `changed` is called on the server's thread after it has carried out requests or a client has left. It must not
  // throw.
  StoreServer(const std::string& host, std::uint16_t port, std::function<void(const StoreServer&)> changed = {},
              std::chrono::milliseconds hello_limit = kStoreHelloLimit);
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  ~StoreServer();  // closes all connections

  [[nodiscard]] std::uint16_t port() const { return listener_.port; }
  // The functions below can be called from any thread.
  [[nodiscard]] std::size_t clients() const;  // connected, and known to be torch's
  void set(const std::string& key, std::string value);
  [[nodiscard]] std::optional<std::string> get(const std::string& key) const;
  void erase(const std::string& key);
  // Waits until one of the keys exists. Returns false if the deadline has passed, or no client is connected, before.
  [[nodiscard]] bool wait_for_any(std::span<const std::string> keys, Deadline deadline) const;

 private:
  struct Connection {
    Descriptor socket;
    StoreState::Client client;
    Deadline hello_deadline;
  };

  void run();
  void accept_one();
  // Reads and writes what is possible. Returns false if the connection is over.
  [[nodiscard]] bool serve(const Connection& connection, short events);
  // Returns true if the client has not begun in time.
  [[nodiscard]] bool is_late(const Connection& connection) const;
  void wake();

  std::function<void(const StoreServer&)> changed_;
  const std::chrono::milliseconds hello_limit_;
  Listener listener_;
  Pipe wake_;
  std::vector<Connection> connections_;  // of the server's thread

  mutable std::mutex mutex_;
  mutable std::condition_variable news_;
  StoreState state_;  // guarded by mutex_
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace hone
