// The keys of a TCPStore and its clients' requests, without sockets: bytes of a client go in, bytes for it come out.
// Every client is untrusted, so keys, values, clients and unread answers are bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store_protocol.h"

namespace hone {

inline constexpr std::size_t kMostStoreKeys = 4096;
inline constexpr std::size_t kMostStoreBytes = std::size_t{4} << 20;   // of all keys and values
inline constexpr std::size_t kMostUnreadBytes = std::size_t{1} << 20;  // of answers to one client

class StoreState {
 public:
  using Client = std::int64_t;

  Client add_client();
  void remove_client(Client client) { clients_.erase(client); }
  // Takes bytes that a client has sent and carries out the requests that are complete. Throws Error if the client
  // breaks the protocol or a bound; the caller then removes it.
  void receive(Client client, std::string_view bytes);
  // Bytes to send to a client, from which the caller removes what it has sent.
  [[nodiscard]] std::string& output(Client client) { return clients_.at(client).output; }
  // Returns true if the client has sent kValidate.
  [[nodiscard]] bool is_valid(Client client) const { return clients_.at(client).valid; }
  // The number of clients that have sent kValidate.
  [[nodiscard]] std::size_t valid_clients() const;

  void set(const std::string& key, std::string value);
  [[nodiscard]] std::optional<std::string> get(const std::string& key) const;
  // Adds to the number that the key holds, 0 if there is none, and returns the sum. Throws Error if it holds no number.
  std::int64_t add(const std::string& key, std::int64_t amount);
  bool erase(const std::string& key);
  [[nodiscard]] std::size_t size() const { return values_.size(); }

 private:
  struct ClientState {
    bool valid = false;
    std::string input;  // the beginning of a request
    std::string output;
    std::vector<std::string> awaited;  // keys that a wait is for; empty: it does not wait
  };

  void carry_out(ClientState& client, const StoreRequest& request);
  void answer(ClientState& client, const StoreRequest& request);
  [[nodiscard]] bool has_all(const std::vector<std::string>& keys) const;
  [[nodiscard]] const std::string& existing(const std::string& key) const;  // throws Error if there is none
  // Answers the clients whose wait is over.
  void wake();

  std::map<std::string, std::string, std::less<>> values_;
  std::size_t bytes_ = 0;  // of keys and values
  std::map<Client, ClientState> clients_;
  Client last_client_ = 0;
};

}  // namespace hone
