#include "hub/transfer.h"

#include <algorithm>
#include <thread>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/strings.h"

namespace hone {
namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::int64_t kSaidInBackground = std::int64_t{1} << 30;  // bytes
constexpr std::chrono::milliseconds kLongestPause{60'000};

}  // namespace

TransferBar::TransferBar(const std::string& label, std::int64_t bytes, bool in_background)
    : label_(label), total_(bytes), logs_quarters_(in_background && bytes >= kSaidInBackground) {
  if (bytes >= kMebibyte && !in_background) bar_.emplace(label, bytes / kMebibyte, "MiB");
}

void TransferBar::add(std::int64_t bytes) {
  const std::int64_t before = bytes_ / kMebibyte;
  const std::int64_t quarter = total_ > 0 ? 4 * bytes_ / total_ : 0;
  bytes_ += bytes;
  if (logs_quarters_ && bytes_ < total_ && 4 * bytes_ / total_ > quarter) {
    log_info(
        text_of(label_, ": ", 25 * (4 * bytes_ / total_), "% of ", format_bytes(static_cast<std::uint64_t>(total_))));
  }
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
