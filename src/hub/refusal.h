// Turns refusals of the hub into one-line errors.
#pragma once

#include <string_view>

#include "hub/cache.h"
#include "hub/http.h"

namespace hone {

// Returns true if the same request may succeed later: no complete answer, too many requests, or a server error.
[[nodiscard]] bool is_passing(const HttpAnswer& answer);
// Throws Error that explains the refusal. `path`: the requested file; empty: the repository itself.
[[noreturn]] void fail_refused(const HubRepo& repo, std::string_view path, const HttpAnswer& answer);

}  // namespace hone
