#include "cli/profile/timing.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "backend/stopwatch.h"

namespace hone {
namespace {

constexpr double kLeastRounds = 3;
constexpr double kMostRounds = 25;
constexpr double kMostCalls = 10000;

// Returns [runs][rounds], the seconds of one call in each round, in ascending order for each run.
std::vector<std::vector<double>> rounds_in_turns(Device& device, std::span<const std::function<void()>> runs,
                                                 double budget) {
  const std::unique_ptr<Stopwatch> stopwatch = make_stopwatch(device);
  const auto time = [&](std::size_t which, int count) {
    stopwatch->mark();
    for (int i = 0; i < count; ++i) runs[which]();
    stopwatch->mark();
    return std::max(stopwatch->read()[0] / count, 1e-9);
  };
  // Warm-up: the first two calls open libraries and record launches; the third one gives an estimate of the time.
  std::vector<double> guess;
  for (std::size_t which = 0; which < runs.size(); ++which) {
    (void)time(which, 2);
    guess.push_back(time(which, 1));
  }
  const double slowest = *std::ranges::max_element(guess);
  const int rounds = static_cast<int>(std::clamp(budget / slowest, kLeastRounds, kMostRounds));
  std::vector<std::vector<double>> seconds(runs.size());
  for (int round = -1; round < rounds; ++round) {  // round -1 is a warm-up and not counted
    for (std::size_t which = 0; which < runs.size(); ++which) {
      const int count = static_cast<int>(std::clamp(budget / rounds / guess[which], 1.0, kMostCalls));
      const double each = time(which, count);
      if (round >= 0) seconds[which].push_back(each);
    }
  }
  for (std::vector<double>& each : seconds) std::ranges::sort(each);
  return seconds;
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

double min_seconds(Device& device, const std::function<void()>& run, double budget) {
  return rounds_in_turns(device, {&run, 1}, budget)[0].front();
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

}  // namespace hone
