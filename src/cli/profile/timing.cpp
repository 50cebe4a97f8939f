#include "cli/profile/timing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "backend/stopwatch.h"
#include "cli/profile/one_op.h"
#include "core/parallel.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr double kLeastRounds = 3;
constexpr double kMostRounds = 25;
constexpr double kMostCalls = 10000;

// Seconds of one call in each round, by run, ascending.
std::vector<std::vector<double>> rounds_in_turns(Device& device, std::span<const std::function<void()>> runs,
                                                 double budget) {
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
  for (std::vector<double>& each : seconds) std::ranges::sort(each);
  return seconds;
}

// What a device can do is its best round: others share it with whatever else the machine does.
double least_seconds(Device& device, const std::function<void()>& run, double budget) {
  return rounds_in_turns(device, {&run, 1}, budget)[0].front();
}

}  // namespace

std::vector<double> seconds_in_turns(Device& device, std::span<const std::function<void()>> runs, double budget) {
  std::vector<double> medians;
  for (const std::vector<double>& each : rounds_in_turns(device, runs, budget)) {
    medians.push_back(each[each.size() / 2]);
  }
  return medians;
}

double seconds_per_run(Device& device, const std::function<void()>& run, double budget) {
  return seconds_in_turns(device, {&run, 1}, budget)[0];
}

std::string flops_text(double flops_per_second) {
  constexpr std::pair<double, const char*> kUnits[] = {{1e12, "TFLOP/s"}, {1e9, "GFLOP/s"}, {1e6, "MFLOP/s"}};
  std::array<char, 40> text{};
  for (const auto& [scale, name] : kUnits) {
    const double value = flops_per_second / scale;
    if (value < 1 && scale > 1e6) continue;
    const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    std::snprintf(text.data(), text.size(), "%.*f %s", decimals, value, name);
    break;
  }
  return text.data();
}

FlopUnit flop_unit(double flops_per_second) {
  const FlopUnit tera;
  return flops_per_second < 10 * tera.scale ? FlopUnit{.name = "GFLOP/s", .scale = 1e9} : tera;
}

namespace {

void copy_all(Device& device, const Buffer& to, const Buffer& from, std::size_t bytes) {
  if (device.kind() != DeviceKind::cpu) return device.copy(to.data(), from.data(), bytes);
  constexpr std::int64_t kPiece = 64 << 10;
  parallel_for(static_cast<std::int64_t>(bytes), kPiece, [&](std::int64_t begin, std::int64_t end) {
    device.copy(to.data() + begin, from.data() + begin, static_cast<std::size_t>(end - begin));
  });
}

double product_rate(Device& device, DType dtype, std::int64_t size, double budget) {
  Program program;
  (void)linear(program.input("x", {dtype, {size, size}}), program.weight("w", {dtype, {size, size}}));
  OneOp product(program, program.nodes()[0], device, {}, 1);
  Executable executable = product.executable();
  return 2.0 * std::pow(static_cast<double>(size), 3) / least_seconds(device, [&] { executable.run(); }, budget);
}

}  // namespace

DeviceLimits measure_limits(Device& device, bool bf16, double budget) {
  register_operations();
  const bool host = device.kind() == DeviceKind::cpu;
  DeviceLimits limits;
  {
    constexpr std::size_t kSmallest = std::size_t{256} << 10;
    const std::size_t largest = std::size_t{host ? 64u : 1024u} << 20;
    const Buffer from(device, largest);
    const Buffer to(device, largest);
    device.fill(from.data(), 0x5A, largest);
    std::vector<std::size_t> sizes;
    for (std::size_t bytes = kSmallest; bytes <= largest; bytes *= 4) sizes.push_back(bytes);
    for (const std::size_t bytes : sizes) {
      const double share = bytes == largest ? 1.0 : 1.0 / static_cast<double>(sizes.size());
      const double seconds = least_seconds(device, [&] { copy_all(device, to, from, bytes); }, budget * share);
      const double moved = 2 * static_cast<double>(bytes);
      limits.copies.push_back({moved, moved / seconds});
    }
    limits.copy_bytes_per_second = limits.copies.back().bytes_per_second;
  }
  limits.flops_per_second = product_limit(device, bf16, budget);
  return limits;
}

double product_limit(Device& device, bool bf16, double budget) {
  register_operations();
  if (device.kind() != DeviceKind::cpu) return product_rate(device, bf16 ? DType::bf16 : DType::f32, 8192, budget);
  // A host multiplies in f32 whatever the type, and which size is the fastest depends on its caches.
  double best = 0;
  for (const std::int64_t size : {std::int64_t{512}, std::int64_t{1024}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      best = std::max(best, product_rate(device, dtype, size, budget / 4));
    }
  }
  return best;
}

}  // namespace hone
