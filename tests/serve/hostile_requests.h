// Requests that a server must refuse: invalid HTTP, bodies that are no request, and attempts to smuggle one.
#pragma once

#include <cstdint>
#include <string>

namespace hone::test {

struct HostileRequest {
  std::string kind;
  std::string bytes;  // the whole request, or what is sent of it
  // True if the client closes the connection after these bytes, so that there is no answer.
  bool leaves = false;
  // True if the server must close the connection after its answer.
  bool ends = false;
  // Valid requests that come before the hostile one on the connection and are answered with status 200.
  int valid_before = 0;
};

// Returns a request that depends on the seed only. `max_body_bytes` and `max_header_bytes` are the server's limits.
[[nodiscard]] HostileRequest hostile_request(std::uint64_t seed, std::size_t max_body_bytes,
                                             std::size_t max_header_bytes);

}  // namespace hone::test
