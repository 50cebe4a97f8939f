#include "cli/bench/read_rate.h"

#include <atomic>
#include <cstdint>

#include "cli/profile/timing.h"
#include "core/parallel.h"

namespace hone {
namespace {

constexpr double kSeconds = 0.2;  // of a measurement, with at least three passes

using Line = std::uint64_t __attribute__((vector_size(64)));

// Four sums, so that no addition waits for the one before it.
std::uint64_t sum_of(const Line* lines, std::int64_t count) {
  Line sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int j = 0; j < 4; ++j) sums[j] += lines[i + j];
  }
  for (; i < count; ++i) sums[0] += lines[i];
  const Line all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  std::uint64_t sum = 0;
  for (int j = 0; j < 8; ++j) sum += all[j];
  return sum;
}

}  // namespace

ReadRate::ReadRate(Device& cpu, std::size_t bytes) : cpu_(cpu), buffer_(cpu, bytes / sizeof(Line) * sizeof(Line)) {
  cpu.fill(buffer_.data(), 1, buffer_.size());  // untouched pages would all be one page of zeros
}

double ReadRate::measure() const {
  static std::atomic<std::uint64_t> read = 0;  // keeps the reads from being left out
  const auto pass = [this] {
    parallel_for(static_cast<std::int64_t>(buffer_.size() / sizeof(Line)), 1024,
                 [this](std::int64_t begin, std::int64_t end) {
                   read += sum_of(reinterpret_cast<const Line*>(buffer_.data()) + begin, end - begin);
                 });
  };
  return static_cast<double>(buffer_.size()) / min_seconds(cpu_, pass, kSeconds);
}

}  // namespace hone
