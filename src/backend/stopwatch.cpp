#include "backend/stopwatch.h"

#include <chrono>

#include "backend/gpu.h"

namespace hone {
namespace {

class HostStopwatch final : public Stopwatch {
 public:
  explicit HostStopwatch(Device& device) : device_(device) {}

  void mark() override {
    device_.synchronize();
    marks_.push_back(Clock::now());
  }
  std::vector<double> read() override {
    std::vector<double> seconds;
    for (std::size_t i = 1; i < marks_.size(); ++i) {
      seconds.push_back(std::chrono::duration<double>(marks_[i] - marks_[i - 1]).count());
    }
    marks_.clear();
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;

  Device& device_;
  std::vector<Clock::time_point> marks_;
};

}  // namespace

std::unique_ptr<Stopwatch> make_stopwatch(Device& device) {
  if (device.kind() == DeviceKind::kCuda) return make_gpu_stopwatch(device);
  return std::make_unique<HostStopwatch>(device);
}

}  // namespace hone
