// An address that a server takes before it is ready to answer there.
#pragma once

#include <cstdint>
#include <string>

namespace hone {

class BoundAddress {
 public:
  // Binds a socket, which refuses connections until the server listens. host: a name or an address of the interface;
  // port 0: any free one. Throws Error if the address cannot be used. Programs that the process starts do not get it.
  BoundAddress(const std::string& host, std::uint16_t port);
  ~BoundAddress();
  BoundAddress(const BoundAddress&) = delete;
  BoundAddress& operator=(const BoundAddress&) = delete;

  [[nodiscard]] bool is_ipv6() const { return is_ipv6_; }
  // Returns the descriptor of the socket, which the caller must close.
  [[nodiscard]] int release();

 private:
  int descriptor_ = -1;
  bool is_ipv6_ = false;
};

// The error of an address at which no server can listen.
[[noreturn]] void throw_cannot_listen(const std::string& host, std::uint16_t port, const std::string& why);

}  // namespace hone
