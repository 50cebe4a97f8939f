// Progress bar and retry pauses, shared by downloads and uploads.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "core/progress.h"
#include "hub/http.h"

namespace hone {

// One bar in MiB for all files of a transfer; a small transfer has none. A transfer in the background of a task with
// its own bar instead logs a line at each quarter, if it is large.
class TransferBar {
 public:
  // `label`: "Downloading NAME". `bytes`: total of all files.
  TransferBar(const std::string& label, std::int64_t bytes, bool in_background = false);
  void add(std::int64_t bytes);

 private:
  std::string label_;
  std::int64_t total_ = 0;
  bool logs_quarters_ = false;
  std::optional<Progress> bar_;
  std::int64_t bytes_ = 0;
};

inline constexpr std::chrono::milliseconds kRetryPause{250};

// Sleeps for first x 2^tries, at most a minute. Throws Interrupted.
void pause_before_retry(int tries, std::chrono::milliseconds first = kRetryPause);

}  // namespace hone
