// Many waits at once.
#pragma once

#include <cstddef>
#include <functional>

namespace hone {

// Calls body(0) .. body(count - 1), begun in this order, on threads of their own: body waits for other processes more
// than it computes. `workers` at a time (0: thread_count()). Where a call throws, no further ones begin, and the first
// exception is thrown again.
void run_many(std::size_t count, int workers, const std::function<void(std::size_t)>& body);

}  // namespace hone
