#include "core/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/terminal.h"

namespace hone {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kPlainLine{30};

std::string rate_text(double rate) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), rate >= 100 ? "%.0f" : rate >= 10 ? "%.1f" : "%.2f", rate);
  return buffer.data();
}

// "37/100 [12s<21s, 3.05 step/s, loss 2.31]"
std::string counts_text(const ProgressState& state) {
  const std::string done = format_count(state.done);
  std::string text = state.total > 0 ? text_of(done, "/", format_count(state.total)) : done;
  text += " [" + format_duration(state.elapsed_seconds);
  const auto fresh = static_cast<double>(state.done - state.initial);
  const double rate = state.elapsed_seconds > 0 ? fresh / state.elapsed_seconds : 0;
  if (rate > 0) {
    if (state.total > 0) text += "<" + format_duration(static_cast<double>(state.total - state.done) / rate);
    text += rate >= 1 ? text_of(", ", rate_text(rate), " ", state.unit, "/s")
                      : text_of(", ", rate_text(1 / rate), " s/", state.unit);
  }
  if (!state.postfix.empty()) text += ", " + state.postfix;
  return text + "]";
}

double share_of(const ProgressState& state) {
  if (state.total <= 0) return 0;
  return std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0);
}

std::string percent_text(const ProgressState& state) {
  if (state.total <= 0) return "";
  std::array<char, 16> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%3d%% ", static_cast<int>(share_of(state) * 100));
  return buffer.data();
}

// Draws the bar: `share` of `cells` columns, to an eighth of a column.
std::string blocks(double share, int cells) {
  constexpr std::array<std::string_view, 8> kEighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(share * cells * 8);
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  text += kEighths[static_cast<std::size_t>(eighths % 8)];
  const int filled = (eighths + 7) / 8;
  return text + std::string(static_cast<std::size_t>(cells - filled), ' ');
}

}  // namespace

std::string progress_line(const ProgressState& state) {
  return state.label + " " + percent_text(state) + counts_text(state);
}

std::string progress_bar(const ProgressState& state, int width) {
  constexpr int kLeast = 5;
  constexpr int kMost = 40;
  std::string line = progress_line(state);
  const int room = width - static_cast<int>(line.size()) - 4;
  if (state.total > 0 && room >= kLeast) {
    return text_of(state.label, " ", percent_text(state), "|", blocks(share_of(state), std::min(room, kMost)), "| ",
                   counts_text(state));
  }
  if (static_cast<int>(line.size()) < width) return line;
  std::size_t end = static_cast<std::size_t>(std::max(width - 1, 0));
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0u) == 0x80u) --end;  // start of a character
  return line.substr(0, end);
}

Progress::Progress(std::string_view label, std::int64_t total, std::string_view unit, std::int64_t initial)
    : state_{.label = std::string(label),
             .unit = std::string(unit),
             .done = initial,
             .total = total,
             .initial = initial},
      start_(Clock::now()),
      drawn_(start_),
      terminal_(is_terminal(OutputStream::kStandardError)) {
  draw(terminal_);
}

Progress::~Progress() { finish(); }

void Progress::advance(std::int64_t count) {
  state_.done += count;
  draw(false);
}

void Progress::set_postfix(std::string_view text) {
  state_.postfix = text;
  draw(false);
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  state_.elapsed_seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (terminal_) set_status_line("");
  log_line(progress_line(state_));
}

void Progress::draw(bool now) {
  const auto time = Clock::now();
  if (!now && time - drawn_ < (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kPlainLine))) return;
  drawn_ = time;
  state_.elapsed_seconds = std::chrono::duration<double>(time - start_).count();
  if (terminal_) {
    set_status_line(progress_bar(state_, terminal_width(OutputStream::kStandardError)));
  } else {
    log_line(progress_line(state_));
  }
}

}  // namespace hone
