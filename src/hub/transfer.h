// What downloads and uploads have in common: a bar of progress, and pauses before another try.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "core/progress.h"
#include "hub/http.h"

namespace hone {

// One bar in MiB for all files of a transfer; small transfers have none. In the background of something that has a bar
// of its own: a line at each quarter of a large one.
class TransferBar {
 public:
  // `label`: "Downloading NAME". `bytes`: of all files.
  TransferBar(const std::string& label, std::int64_t bytes, bool in_background = false);
  void add(std::int64_t bytes);

 private:
  std::string label_;
  std::int64_t total_ = 0;
  bool says_quarters_ = false;
  std::optional<Progress> bar_;
  std::int64_t bytes_ = 0;
};

inline constexpr std::chrono::milliseconds kRetryPause{250};

// Waits first x 2^tries, at most a minute. Throws Interrupted.
void pause_before_retry(int tries, std::chrono::milliseconds first = kRetryPause);

}  // namespace hone
