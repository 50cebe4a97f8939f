// The table of the endpoints: which function answers which requests, to whom it is open, and what it reads.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "serve/endpoints.h"

namespace hone {

enum class Access : std::uint8_t {
  kAnyone,
  kKey,      // with the API key, if there is one
  kControl,  // likewise, and only if the server allows weight updates
};

// The body that an endpoint takes, for its description.
struct RouteBody {
  std::string_view example;                        // a small valid body, as JSON
  void (*parse)(std::string_view body) = nullptr;  // reads a body as the endpoint does
};

struct Route {
  std::string_view method;
  std::string_view path;  // with * at its end: every path that begins with it
  Endpoint endpoint;
  Access access;
  std::string_view summary = {};
  RouteBody body = {};
};

[[nodiscard]] std::span<const Route> routes();
// Returns the route of a request's path, whatever its method; null if there is none.
[[nodiscard]] const Route* route_of(const ServerRequest& request);

}  // namespace hone
