// What the hub's refusals mean, in one line.
#pragma once

#include <string_view>

#include "hub/cache.h"
#include "hub/http.h"

namespace hone {

// Whether the same request may succeed later: no whole answer, too many requests, or a fault of the server.
[[nodiscard]] bool is_passing(const HttpAnswer& answer);
// Throws Error. `path`: the file that was asked for; empty: the repository itself.
[[noreturn]] void fail_refused(const HubRepo& repo, std::string_view path, const HttpAnswer& answer);

}  // namespace hone
