// Broadcasts between the devices of processes that need not be of one program: each is a rank of an NCCL communicator.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

#include "backend/device.h"

namespace hone {

class BroadcastRank {
 public:
  virtual ~BroadcastRank() = default;
  // Copies the bytes of rank `root`, which are not changed, to all other ranks. Waits for the device's earlier work
  // before, and until this rank's part is done. `gives_up` is called meanwhile; once it returns true, or if the
  // transfer fails, throws Error. The object is then of no further use and the bytes are undefined.
  virtual void broadcast(std::byte* data, std::size_t bytes, int root, const std::function<bool()>& gives_up) = 0;
};

// A way to communicators: that of GPUs, or a test's.
struct BroadcastBackend {
  using Id = std::array<std::byte, 128>;  // ncclUniqueId

  // Returns the id of a new communicator.
  std::function<Id()> make_id;
  // Joins a communicator of `size` ranks as `rank`, waits until all ranks have joined, and adds one number over all of
  // them, as vLLM's communicators do when they are made. Throws Error if that fails or `gives_up` returns true.
  std::function<std::unique_ptr<BroadcastRank>(const Id& id, int rank, int size, const std::function<bool()>& gives_up)>
      join;
};

}  // namespace hone
