#include "rl/show.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "rl/rollout.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

// Returns the training steps that have completions, in ascending order.
std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  if (!fs::is_directory(folder)) return steps;
  constexpr std::string_view kBegin = "step-";
  constexpr std::string_view kEnd = ".jsonl";
  for (const std::string& name : list_folder(folder)) {
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) continue;
    std::int64_t step = 0;
    const char* end = name.data() + name.size() - kEnd.size();
    if (std::from_chars(name.data() + kBegin.size(), end, step).ptr == end) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// Returns the file with the completions of a step. Throws Error that names the available steps if there is none.
fs::path file_of(const fs::path& run, std::string_view step) {
  const fs::path folder = run / "completions";
  const std::vector<std::int64_t> steps = steps_in(folder);
  if (steps.empty()) {
    throw Error(run.string(), "holds no completions of a run of hone grpo", "name the output_dir of such a run");
  }
  if (step.empty()) return folder / text_of("step-", steps.back(), ".jsonl");
  const bool evaluation = step.starts_with("eval-");
  const std::string_view number = evaluation ? step.substr(5) : step;
  fs::path path = folder / text_of(evaluation ? "eval-step-" : "step-", number, ".jsonl");
  if (is_file(path)) return path;
  throw Error(run.string(), text_of("has no completions of step ", shown(step)),
              text_of("there are ", steps.size(), ", from step ", steps.front(), " to ", steps.back()));
}

std::string text_under(const std::string& title, const std::string& text) {
  return text_of("---- ", title, "\n", text, text.ends_with('\n') ? "" : "\n");
}

}  // namespace

std::string format_completions(const fs::path& run, std::string_view step, std::optional<std::int64_t> most) {
  const fs::path path = file_of(run, step);
  const std::vector<std::string> lines = split(read_file(path), '\n');
  std::string text;
  std::optional<std::int64_t> prompt;
  std::int64_t shown_so_far = 0;
  for (std::size_t i = 0; i < lines.size() && shown_so_far < most.value_or(std::ssize(lines)); ++i) {
    if (lines[i].empty()) continue;
    const std::string where = text_of(path.string(), ":", i + 1);
    const Json json = parse_json(lines[i], where);
    try {
      const auto number = json.at("row").get<std::int64_t>();
      if (prompt != number) {
        text += text_under(text_of("step ", json.at("step").get<std::int64_t>(), ", prompt ", number),
                           json.at("prompt").get<std::string>());
      }
      prompt = number;
      text += text_under(rewards_text(json), json.at("completion").get<std::string>());
    } catch (const Json::exception&) {
      throw Error(where, "is no completion that hone grpo has written");
    }
    ++shown_so_far;
  }
  return printable(text);
}

}  // namespace hone
