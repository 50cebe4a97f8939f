// Counts hardware events of each kernel that a GPU runs, by CUPTI, which is opened at run time. Implemented as
// backend/gpu.h is.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"

namespace hone {

// Events of one launch of a kernel.
struct KernelEvents {
  std::string kernel;          // symbol of its function, mangled in C++
  std::vector<double> counts;  // [GpuCounters::names()]
};

// All events add up over launches: a share of a peak is given as the nanoseconds that it would take at the peak, so
// that its sum, divided by gpu_ns, is the share of several launches.
class GpuCounters {
 public:
  virtual ~GpuCounters() = default;

  // Names of the events that this GPU counts, a subset of these:
  //   gpu_ns                     time of the kernel, alone on the GPU
  //   dram_read_bytes, dram_written_bytes
  //   dram_peak_ns               time that these bytes take at the peak rate of the memory
  //   tensor_active_ns           time in which the pipes of the tensor cores were active
  //   occupancy_ns               time x warps in flight / most warps, over the SMs that had warps
  //   l2_sectors, l2_hits        sectors of 32 bytes looked up in the L2 cache, and those found there
  //   gpu_instructions           instructions executed, of warps
  [[nodiscard]] virtual const std::vector<std::string_view>& names() const = 0;

  // Calls `work` several times, once to count its launches and then once for each pass: the GPU has too few counters to
  // count all events at the same time. Each call must launch the same kernels in the same order, none of them from a
  // recording. Kernels run one after the other, slower than without counting. Returns an entry for each launch. Throws
  // Error if CUPTI refuses, and what `work` throws.
  [[nodiscard]] virtual std::vector<KernelEvents> count(const std::function<void()>& work) = 0;
  // Kernels that the present call of `work` has launched so far.
  [[nodiscard]] virtual std::size_t launches() const = 0;
};

// Throws Error, which says what is missing and how to get it, if the library is not found, this build has no CUPTI, or
// the driver refuses to give counters to this process.
[[nodiscard]] std::unique_ptr<GpuCounters> make_gpu_counters(Device& gpu);

}  // namespace hone
