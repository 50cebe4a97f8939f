#include "cli/profile/timing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/stopwatch.h"
#include "cli/profile/one_op.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr double kLeastRounds = 3;
constexpr double kMostRounds = 25;
constexpr double kMostCalls = 10000;

}  // namespace

std::vector<double> seconds_in_turns(Device& device, std::span<const std::function<void()>> runs, double budget) {
  const std::unique_ptr<Stopwatch> stopwatch = make_stopwatch(device);
  const auto time = [&](std::size_t which, int count) {
    stopwatch->mark();
    for (int i = 0; i < count; ++i) runs[which]();
    stopwatch->mark();
    return std::max(stopwatch->read()[0] / count, 1e-9);
  };
  // The first calls open libraries and record.
  std::vector<double> guess;
  for (std::size_t which = 0; which < runs.size(); ++which) {
    (void)time(which, 2);
    guess.push_back(time(which, 1));
  }
  const double slowest = *std::ranges::max_element(guess);
  const int rounds = static_cast<int>(std::clamp(budget / slowest, kLeastRounds, kMostRounds));
  std::vector<std::vector<double>> seconds(runs.size());
  for (int round = -1; round < rounds; ++round) {  // the first is not counted
    for (std::size_t which = 0; which < runs.size(); ++which) {
      const int count = static_cast<int>(std::clamp(budget / rounds / guess[which], 1.0, kMostCalls));
      const double each = time(which, count);
      if (round >= 0) seconds[which].push_back(each);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& each : seconds) {
    std::ranges::sort(each);
    medians.push_back(each[each.size() / 2]);
  }
  return medians;
}

double seconds_per_run(Device& device, const std::function<void()>& run, double budget) {
  return seconds_in_turns(device, {&run, 1}, budget)[0];
}

double DeviceLimits::floor(double flops, double bytes) const {
  return std::max(flops / flops_per_second, bytes / copy_bytes_per_second);
}

FlopUnit flop_unit(double flops_per_second) {
  if (flops_per_second < 1e13) return {.name = "GFLOP/s", .scale = 1e9};
  return {};
}

DeviceLimits measure_limits(Device& device, bool bf16, double budget) {
  register_operations();
  const bool host = device.kind() == DeviceKind::cpu;
  DeviceLimits limits;
  {
    const std::size_t bytes = std::size_t{host ? 64u : 1024u} << 20;
    const Buffer from(device, bytes);
    const Buffer to(device, bytes);
    device.fill(from.data(), 0x5A, bytes);
    limits.copy_bytes_per_second = 2 * static_cast<double>(bytes) /
                                   seconds_per_run(device, [&] { device.copy(to.data(), from.data(), bytes); }, budget);
  }
  const std::int64_t size = host ? 512 : 8192;
  const DType dtype = bf16 ? DType::bf16 : DType::f32;
  Program program;
  (void)linear(program.input("x", {dtype, {size, size}}), program.weight("w", {dtype, {size, size}}));
  OneOp product(program, program.nodes()[0], device, {}, 1);
  Executable executable = product.executable();
  limits.flops_per_second =
      2.0 * std::pow(static_cast<double>(size), 3) / seconds_per_run(device, [&] { executable.run(); }, budget);
  return limits;
}

}  // namespace hone
