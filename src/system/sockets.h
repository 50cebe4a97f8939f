// TCP connections over IPv4 between processes that may be on several machines.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "core/descriptor.h"

namespace hone {

// Returns the address of a name or of four numbers. Throws Error that begins with `where` if there is none.
[[nodiscard]] sockaddr_in ipv4_address(const std::string& host, std::uint16_t port, const std::string& where);

// Returns the name of this machine.
[[nodiscard]] std::string own_host();

// Makes small messages leave immediately, and a machine that disappears be noticed after half a minute.
void configure(int connection);

// Connects, trying again while the connection is refused. `stops`, if given, is called every 50 ms; once it returns
// true, or the deadline has passed, Error is thrown with the last reason and `fix`. Returns a blocking socket that is
// configured. name: of the other end, in the Error
[[nodiscard]] Descriptor connect_to(const sockaddr_in& address, const std::string& name, const std::string& fix,
                                    std::chrono::steady_clock::time_point deadline,
                                    const std::function<bool()>& stops = {});

struct Listener {
  Descriptor socket;
  std::uint16_t port = 0;
};
// Returns a blocking socket that listens on an address, and its port, which the system chooses if it is 0. Throws Error
// that begins with `where` and ends with `fix` if that is not possible.
[[nodiscard]] Listener listen_on(sockaddr_in address, const std::string& where, const std::string& fix);

}  // namespace hone
