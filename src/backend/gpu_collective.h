// The GPU of a process that is one of several of a job. Implemented as backend/gpu.h is.
#pragma once

#include <memory>
#include <vector>

#include "backend/broadcast_receiver.h"
#include "backend/collective.h"
#include "backend/device.h"

namespace hone {

// Chooses the GPU that gpu_device() returns, by its number among the visible ones, modulo their number. To be called
// before the first use of a GPU.
void choose_gpu(int ordinal);
// Operations between the GPUs of a group of ranks of a job, by NCCL. Throws Error if it cannot be used.
[[nodiscard]] std::unique_ptr<Collective> make_gpu_collective(Device& gpu, Peers& peers, std::vector<int> group);
// Broadcasts of another process to the GPU, by NCCL, which is opened here; if that fails, the functions of what is
// returned throw its Error. To be called while no other thread reads the environment, which opening changes. The device
// must outlive what is returned.
[[nodiscard]] BroadcastBackend gpu_broadcasts(Device& gpu);

}  // namespace hone
