#include "rendezvous/address.h"

#include <netdb.h>

#include "core/error.h"

namespace hone {

sockaddr_in ipv4_address(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (status != 0) throw Error(host, text_of("has no IPv4 address: ", ::gai_strerror(status)));
  sockaddr_in address = *reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  ::freeaddrinfo(found);
  address.sin_port = htons(port);
  return address;
}

}  // namespace hone
