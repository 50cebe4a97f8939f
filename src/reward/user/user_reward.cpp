#include "reward/user/user_reward.h"

#include <unistd.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "reward/user/host.h"
#include "reward/user/program_output.h"
#include "reward/user/python_reward.h"
#include "sandbox/process_supervisor.h"
#include "system/child.h"
#include "system/streams.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

// A batch of n completions may print kLeastOutput + n * kAnswerBytes bytes.
constexpr std::uint64_t kAnswerBytes = 256;
constexpr std::uint64_t kLeastOutput = 64 << 10;

std::string lines_of(std::span<const RewardInput> batch) {
  std::string lines;
  for (const RewardInput& input : batch) {
    const Json line = {{"completion", input.completion},
                       {"row", input.row != nullptr ? *input.row : Json::object()},
                       {"group", input.group},
                       {"token_count", input.token_count},
                       {"ended", input.ended}};
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return lines;
}

class UserReward {
 public:
  UserReward(std::string path, std::chrono::milliseconds time_limit)
      : path_(std::move(path)), is_object_(path_.ends_with(".so")), time_limit_(time_limit) {
    std::error_code error;
    if (!fs::is_regular_file(path_, error)) refuse("there is no such file", "a name with a slash is a path");
    if (!is_object_ && access(path_.c_str(), X_OK) != 0) {
      refuse("it is not executable", "run chmod +x, or name a shared object *.so");
    }
    path_ = fs::absolute(path_).string();
    if (is_object_) (void)judge({});
  }

  [[nodiscard]] RewardScores judge(std::span<const RewardInput> batch) const {
    const SandboxResult result = run(batch);
    const std::string said = printable(last_line(result.error).substr(0, 300));
    const std::string why = said.empty() ? std::string() : text_of("; last line on standard error: ", said);
    const bool failed = result.timed_out || result.output_exceeded || result.signal != 0 || result.exit_status != 0;
    if (failed) show_tail(result.error);
    if (result.timed_out)
      refuse(text_of("it did not end within ", format_seconds(), why), "reward_timeout sets the limit");
    if (result.output_exceeded) refuse("it printed too much", "print one line per completion");
    if (result.signal != 0) refuse(text_of("it was killed by signal ", result.signal, why));
    if (result.exit_status != 0) refuse(text_of("it exited with status ", result.exit_status, why));
    show_said(path_, result.error);
    return scores_in(result.output, batch.size());
  }

 private:
  [[noreturn]] void refuse(std::string_view what, std::string_view fix = {}) const {
    throw Error(text_of("the reward ", path_), what, fix);
  }

  static std::string_view last_line(std::string_view text) {
    text = trim(text);
    const std::size_t at = text.rfind('\n');
    return at == std::string_view::npos ? text : text.substr(at + 1);
  }

  [[nodiscard]] std::string format_seconds() const {
    return text_of(static_cast<double>(time_limit_.count()) / 1000, " s");
  }

  [[nodiscard]] SandboxResult run(std::span<const RewardInput> batch) const {
    const Descriptor input = sealed_file(lines_of(batch));
    Pipe output = make_pipe();
    Pipe error = make_pipe();
    ChildPlan plan{.arguments = {is_object_ ? "/proc/self/exe" : path_},
                   .environment = current_environment(),
                   .folder = {},
                   .descriptors = {input.number(), output.write.number(), error.write.number()},
                   .limits = {}};
    if (is_object_) plan.environment.push_back(text_of(host_variable(), '=', path_));
    const pid_t id = start_child(plan);
    output.write = Descriptor();
    error.write = Descriptor();
    SandboxLimits limits;
    limits.wall_time = time_limit_;
    limits.output_bytes = kLeastOutput + kAnswerBytes * batch.size();
    return watch({.id = id, .output = std::move(output.read), .error = std::move(error.read), .status = {}}, limits);
  }

  [[nodiscard]] RewardScores scores_in(std::string_view output, std::size_t wanted) const {
    std::vector<std::string> lines = split(output, '\n');
    if (!lines.empty() && trim(lines.back()).empty()) lines.pop_back();
    if (lines.size() != wanted) {
      refuse(text_of("it printed ", lines.size(), " lines for ", wanted, " completions"),
             path_.ends_with(".py")
                 ? "print one number or null per line, in order; to call a function instead, use FILE.py:FUNCTION"
                 : "print one number or null per line, in order");
    }
    RewardScores scores;
    for (const std::string& line : lines) scores.push_back(score_in(trim(line), scores.size() + 1));
    return scores;
  }

  [[nodiscard]] std::optional<double> score_in(std::string_view text, std::size_t line) const {
    if (text == "null") return std::nullopt;
    double score = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), score);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(score)) {
      refuse(text_of("line ", line, " is '", printable(text.substr(0, 60)), "'"), "print a finite number or null");
    }
    return score;
  }

  std::string path_;
  bool is_object_ = false;
  std::chrono::milliseconds time_limit_;
};

}  // namespace

bool is_user_reward(std::string_view name) {
  return name.find('/') != std::string_view::npos || is_python_reward(name);
}

Reward make_user_reward(const std::string& path, std::chrono::milliseconds time_limit) {
  if (is_python_reward(path)) return make_python_reward(path, time_limit);
  return {path, fs::path(path).stem().string(),
          [reward = UserReward(path, time_limit)](std::span<const RewardInput> batch) { return reward.judge(batch); }};
}

}  // namespace hone
