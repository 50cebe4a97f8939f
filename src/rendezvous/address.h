// IPv4 addresses of hosts.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>

namespace hone {

// Returns the address of a name or of four numbers. Throws Error if there is none.
[[nodiscard]] sockaddr_in ipv4_address(const std::string& host, std::uint16_t port);

}  // namespace hone
