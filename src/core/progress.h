// A progress bar on a terminal; plain lines now and then where standard error is none.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

struct ProgressState {
  std::string label;          // "Training"
  std::string unit = "step";  // of the rate: "3.1 step/s"
  std::int64_t done = 0;
  std::int64_t total = 0;    // 0: not known
  std::int64_t initial = 0;  // what was done before the clock started: a resumed run
  double elapsed_seconds = 0;
  std::string postfix;  // "loss 2.31"
};

// "Training  37% |███████▍          | 37/100 [12s<21s, 3.05 step/s, loss 2.31]", at most `width` columns.
[[nodiscard]] std::string progress_bar(const ProgressState& state, int width);
// The same without the bar.
[[nodiscard]] std::string progress_line(const ProgressState& state);

// Messages of core/log.h are printed above the bar.
class Progress {
 public:
  Progress(std::string_view label, std::int64_t total, std::string_view unit = "step", std::int64_t initial = 0);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // as finish

  void advance(std::int64_t count = 1);
  void set_postfix(std::string_view text);
  // Takes the bar away and leaves its last state as a line.
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
