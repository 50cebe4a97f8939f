#include "hub/transfer.h"

#include <algorithm>
#include <thread>

#include "core/error.h"
#include "core/interrupt.h"

namespace hone {
namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::chrono::milliseconds kLongestPause{60'000};

}  // namespace

TransferBar::TransferBar(const std::string& label, std::int64_t bytes) {
  if (bytes >= kMebibyte) bar_.emplace(label, bytes / kMebibyte, "MiB");
}

void TransferBar::add(std::int64_t bytes) {
  const std::int64_t before = bytes_ / kMebibyte;
  bytes_ += bytes;
  if (bar_ && bytes_ / kMebibyte > before) bar_->advance(bytes_ / kMebibyte - before);
}

void pause_before_retry(int tries, std::chrono::milliseconds first) {
  const auto pause = std::min(kLongestPause, first * (std::int64_t{1} << std::min(tries, 20)));
  const auto until = std::chrono::steady_clock::now() + pause;
  while (std::chrono::steady_clock::now() < until) {
    throw_if_interrupted();
    std::this_thread::sleep_for(std::min(pause, std::chrono::milliseconds(20)));
  }
}

}  // namespace hone
