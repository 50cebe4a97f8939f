#include "reward/user/python_reward.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "reward/user/program_output.h"
#include "system/child.h"
#include "system/hosted_process.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

constexpr std::size_t kScoreBytes = 64;        // maximum length of one score in an answer
constexpr std::chrono::seconds kToStart{120};  // minimum limit on the import: a module may import large packages
constexpr std::size_t kLeastAnswer = 1 << 20;  // minimum of the limit on the length of an answer, in bytes

struct PythonTarget {
  std::string file;      // empty: the name is that of a module
  std::string module;    // "package.module"
  std::string function;  // empty: the only function of the file
};

bool is_identifier(std::string_view text) {
  const auto is_letter_or_line = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && is_letter_or_line(text[0]) &&
         std::ranges::all_of(text, [&](char c) { return is_letter_or_line(c) || (c >= '0' && c <= '9'); });
}

// Returns true if the file is executable and begins with "#!".
bool is_program(const std::string& path) {
  if (access(path.c_str(), X_OK) != 0) return false;
  std::array<char, 2> begin{};
  std::ifstream(path).read(begin.data(), begin.size());
  return begin[0] == '#' && begin[1] == '!';
}

// Parses a name in reward_funcs; returns nothing if it does not name a Python function.
std::optional<PythonTarget> target_of(std::string_view name) {
  constexpr std::string_view kEnd = ".py";
  if (name.ends_with(kEnd)) {
    if (is_program(std::string(name))) return std::nullopt;
    return PythonTarget{.file = std::string(name), .module = {}, .function = {}};
  }
  if (const std::size_t colon = name.rfind(':'); colon != std::string_view::npos) {
    const std::string_view file = name.substr(0, colon);
    const std::string_view function = name.substr(colon + 1);
    if (!file.ends_with(kEnd) || !is_identifier(function)) return std::nullopt;
    return PythonTarget{.file = std::string(file), .module = {}, .function = std::string(function)};
  }
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || name.ends_with(".so")) return std::nullopt;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (!is_identifier(name.substr(begin, end - begin))) return std::nullopt;
    begin = end + 1;
  }
  return PythonTarget{
      .file = {}, .module = std::string(name.substr(0, dot)), .function = std::string(name.substr(dot + 1))};
}

bool is_conversation(const RewardInput& input) { return input.prompt != nullptr && input.prompt->is_array(); }

// Encodes a batch as JSON. Each row and prompt is sent once, with the index of the row for each completion, because
// rows may contain large tests and a group shares one row.
std::string request_of(std::span<const RewardInput> batch) {
  Json rows = Json::array();
  Json questions = Json::array();
  Json row_of = Json::array();
  Json completions = Json::array();
  Json ids = Json::array();
  const RewardInput* before = nullptr;
  for (const RewardInput& input : batch) {
    if (before == nullptr || before->row != input.row || before->prompt != input.prompt) {
      rows.push_back(input.row != nullptr ? *input.row : Json::object());
      questions.push_back(input.prompt != nullptr ? *input.prompt : Json());
    }
    before = &input;
    row_of.push_back(rows.size() - 1);
    Json text = std::string(input.completion);
    completions.push_back(is_conversation(input) ? Json::array({{{"role", "assistant"}, {"content", std::move(text)}}})
                                                 : std::move(text));
    ids.push_back(std::vector<std::int32_t>(input.completion_ids.begin(), input.completion_ids.end()));
  }
  const bool has_ids = std::ranges::any_of(batch, [](const auto& input) { return !input.completion_ids.empty(); });
  const RunProgress progress = batch.empty() ? RunProgress() : batch.front().progress;
  const Json request{
      {"rows", std::move(rows)},
      {"prompts", std::move(questions)},
      {"row_of", std::move(row_of)},
      {"completions", std::move(completions)},
      {"completion_ids", has_ids ? std::move(ids) : Json()},
      {"trainer_state",
       {{"global_step", progress.step}, {"max_steps", progress.total_steps}, {"epoch", progress.epoch}}}};
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class PythonReward {
 public:
  PythonReward(const std::string& name, const PythonTarget& target, std::chrono::milliseconds time_limit,
               std::string_view interpreter)
      : name_(name), time_limit_(time_limit) {
    std::error_code error;
    if (!target.file.empty() && !fs::is_regular_file(target.file, error)) {
      refuse(text_of("there is no file ", target.file), "FILE.py:FUNCTION names a function in FILE.py");
    }
    const std::vector<std::string> found = executables_named(interpreter);
    if (found.empty()) {
      refuse(text_of("it needs ", interpreter, ", which is not in PATH"),
             "install it, or use an executable or a shared object");
    }
    process_ =
        std::make_unique<HostedProcess>(std::vector<std::string>{found.front(), "-u", "-X", "utf8", "-c", kPythonHost});
    Json request = target.file.empty() ? Json{{"module", target.module}}
                                       : Json{{"file", fs::absolute(target.file).lexically_normal().string()}};
    if (!target.function.empty()) request["function"] = target.function;
    const auto limit = std::max<std::chrono::milliseconds>(time_limit_, kToStart);
    function_ = ask(request.dump(), 0, limit).at("ready").get<std::string>();
  }

  [[nodiscard]] const std::string& function() const { return function_; }

  [[nodiscard]] RewardScores judge(std::span<const RewardInput> batch) {
    if (batch.empty()) return {};
    const Json answer = ask(request_of(batch), batch.size(), time_limit_);
    RewardScores scores;
    for (const Json& score : answer.at("scores")) {
      scores.push_back(score.is_null() ? std::nullopt : std::optional(score.get<double>()));
    }
    HONE_ASSERT(scores.size() == batch.size(), "the host returned ", scores.size(), " scores for ", batch.size(),
                " completions");
    return scores;
  }

 private:
  [[noreturn]] void refuse(std::string_view what, std::string_view fix = {}) const {
    throw Error(text_of("the reward ", name_), printable(what), fix);
  }

  [[nodiscard]] Json ask(std::string request, std::size_t scores, std::chrono::milliseconds limit) {
    std::string line;
    try {
      line = process_->ask(std::move(request), limit, kLeastAnswer + kScoreBytes * scores);
    } catch (const HostedProcess::Failure& failure) {
      show_tail(process_->take_said());
      refuse(failure.what, failure.timed_out ? "reward_timeout sets the limit" : "");
    }
    const std::string said = process_->take_said();
    Json answer = Json::parse(line, nullptr, false);
    if (!answer.is_object())
      refuse("its process answered with invalid JSON", "the reward must not write to the socket");
    if (const auto error = answer.find("error"); error != answer.end()) {
      show_tail(said);
      refuse(error->get<std::string>());
    }
    show_said(name_, said);
    return answer;
  }

  std::string name_;
  std::chrono::milliseconds time_limit_;
  std::unique_ptr<HostedProcess> process_;
  std::string function_;
};

}  // namespace

bool is_python_reward(std::string_view name) { return target_of(name).has_value(); }

Reward make_python_reward(const std::string& name, std::chrono::milliseconds time_limit, std::string_view interpreter) {
  const std::optional<PythonTarget> target = target_of(name);
  HONE_ASSERT(target.has_value(), name, " does not name a Python function");
  const auto reward = std::make_shared<PythonReward>(name, *target, time_limit, interpreter);
  return {name, reward->function(), [reward](std::span<const RewardInput> batch) { return reward->judge(batch); }};
}

}  // namespace hone
