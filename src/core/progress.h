// Shows the progress of a long loop on standard error: a bar on a terminal, otherwise a line every 30 seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

struct ProgressState {
  std::string label;          // "Training"
  std::string unit = "step";  // one item, as in "3.1 step/s"
  std::int64_t done = 0;
  std::int64_t total = 0;    // 0: unknown
  std::int64_t initial = 0;  // items done before the clock started, by the run that this one resumes
  double elapsed_seconds = 0;
  std::string postfix;  // "loss 2.31"
};

// Formats "Training  37% |███████▍          | 37/100 [12s<21s, 3.05 step/s, loss 2.31]" in at most `width` columns.
[[nodiscard]] std::string progress_bar(const ProgressState& state, int width);
// Formats the same text without the bar.
[[nodiscard]] std::string progress_line(const ProgressState& state);

// Counts the items of one loop and shows their progress. Messages of core/log.h appear above the bar.
class Progress {
 public:
  Progress(std::string_view label, std::int64_t total, std::string_view unit = "step", std::int64_t initial = 0);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // calls finish()

  void advance(std::int64_t count = 1);
  void set_postfix(std::string_view text);
  // Removes the bar and prints its last state as a line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(bool now);

  ProgressState state_;
  Clock::time_point start_;
  Clock::time_point drawn_;
  bool terminal_;
  bool finished_ = false;
};

}  // namespace hone
