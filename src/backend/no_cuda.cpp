// Implements gpu.h in a build without the CUDA backend.
#include "backend/gpu.h"

#include "backend/gpu_collective.h"
#include "backend/gpu_counters.h"

namespace hone {
namespace {

[[noreturn]] void fail() { throw Defect("a GPU function was called in a build without the CUDA backend"); }

}  // namespace

std::optional<Error> gpu_obstacle() {
  return Error("device", "this build of hone has no CUDA backend", "build it with the preset cuda, or use device: cpu");
}

std::optional<std::string> gpu_fp8_obstacle() { fail(); }
int gpu_count() { return 0; }
Device& gpu_device() { fail(); }
DeviceMemory gpu_memory() { fail(); }
DeviceUsage gpu_usage() { fail(); }
std::unique_ptr<Stopwatch> make_gpu_stopwatch(Device&) { fail(); }
Device& gpu_host_memory() { fail(); }
void set_gpu_gemm_tuning(Device&, const GemmTuning&) { fail(); }
void choose_gpu(int) {}
// NOLINTNEXTLINE(performance-unnecessary-value-param): CUDA's version moves it
std::unique_ptr<Collective> make_gpu_collective(Device&, Peers&, std::vector<int>) { fail(); }
BroadcastBackend gpu_broadcasts(Device&) { fail(); }
std::unique_ptr<GpuCounters> make_gpu_counters(Device&) { fail(); }

}  // namespace hone
