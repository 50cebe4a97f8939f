#include "serve/runs/run_folders.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <system_error>

#include "core/error.h"
#include "core/strings.h"
#include "serve/request_error.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kTraining = "step-";
constexpr std::string_view kEvaluation = "eval-step-";
constexpr std::string_view kEnding = ".jsonl";

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// Orders texts as people do: numbers in them by their value.
bool comes_before(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    if (!is_digit(a.front()) || !is_digit(b.front())) {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
      continue;
    }
    const auto number = [](std::string_view& text) {
      const auto end = std::min(text.find_first_not_of("0123456789"), text.size());
      std::string_view digits = text.substr(0, end);
      digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
      text.remove_prefix(end);
      return digits;
    };
    const std::string_view x = number(a);
    const std::string_view y = number(b);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  return a.size() < b.size();
}

struct FileState {
  std::uint64_t bytes = 0;
  double age = 0;
};

// Returns nothing if the path is not a regular file.
std::optional<FileState> state_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || error) return std::nullopt;
  const std::uint64_t bytes = fs::file_size(path, error);
  if (error) return std::nullopt;
  const auto changed = fs::last_write_time(path, error);
  if (error) return std::nullopt;
  const double age = std::chrono::duration<double>(fs::file_time_type::clock::now() - changed).count();
  return FileState{bytes, std::max(age, 0.0)};
}

class Search {
 public:
  explicit Search(fs::path root) : root_(std::move(root)) {}

  FoundRuns run() {
    visit(".", 0);
    std::ranges::sort(found_.runs, comes_before, &RunFolder::id);
    return std::move(found_);
  }

 private:
  // Returns the names of a folder's entries; none if it cannot be read or the limit of entries is reached.
  std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      if (++entries_ > kMaxEntries) {
        found_.is_cut = true;
        break;
      }
      names.push_back(at->path().filename().string());
    }
    return names;
  }

  void visit(const std::string& id, int depth) {
    const fs::path folder = id == "." ? root_ : root_ / id;
    std::error_code unresolved;
    if (!visited_.insert(fs::canonical(folder, unresolved)).second) return;  // a symbolic link leads here again
    RunFolder run{.id = id};
    std::optional<double> age;
    const auto has = [&](const char* name) {
      const std::optional<FileState> state = state_of(folder / name);
      if (state) age = std::min(age.value_or(state->age), state->age);
      return state;
    };
    if (const auto metrics = has("metrics.jsonl")) {
      run.has_metrics = true;
      run.metrics_bytes = metrics->bytes;
    }
    run.has_results = has("results.json").has_value();
    run.has_profile = has("kernel_summary.json").has_value();
    run.age = age.value_or(0);
    if (run.has_metrics) run.completions = completions_in(folder / "completions");
    if (run.has_metrics || run.has_results || run.has_profile) found_.runs.push_back(std::move(run));
    if (depth == kRunDepth) return;
    const std::string prefix = id == "." ? "" : id + "/";
    for (const std::string& name : names_in(folder)) {
      std::error_code error;
      if (name.starts_with('.') || name == "completions" || !fs::is_directory(folder / name, error)) continue;
      visit(prefix + name, depth + 1);
    }
  }

  std::vector<std::string> completions_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (std::string& name : names_in(folder)) {
      if (!name.ends_with(kEnding)) continue;
      name.resize(name.size() - kEnding.size());
      if (is_completions_name(name)) names.push_back(std::move(name));
    }
    std::ranges::sort(names, [](const std::string& a, const std::string& b) {
      const std::string_view first = std::string_view(a).substr(a.rfind('-'));
      const std::string_view second = std::string_view(b).substr(b.rfind('-'));
      return first == second ? a > b : comes_before(first, second);  // training before evaluation
    });
    return names;
  }

  fs::path root_;
  FoundRuns found_;
  std::set<fs::path> visited_;
  std::int64_t entries_ = 0;
};

}  // namespace

bool is_completions_name(std::string_view name) {
  const std::string_view begin = name.starts_with(kEvaluation) ? kEvaluation : kTraining;
  if (!name.starts_with(begin)) return false;
  const std::string_view number = name.substr(begin.size());
  return !number.empty() && number.size() <= 18 && std::ranges::all_of(number, is_digit);
}

FoundRuns find_runs(const fs::path& root) {
  std::error_code error;
  if (!fs::is_directory(root, error)) throw Error(root.string(), "is not a folder", "give the output_dir of a run");
  return Search(root).run();
}

fs::path run_file(const fs::path& root, std::string_view id, std::string_view file) {
  const std::vector<std::string> parts = split(id, '/');
  const auto is_bad = [](const std::string& part) {
    return part.empty() || part.starts_with('.') || part.find('\0') != std::string::npos;
  };
  if (id != "." && (std::ssize(parts) > kRunDepth || std::ranges::any_of(parts, is_bad)))
    throw RequestError("run", text_of("there is no run \"", id, "\""), {}, 404);
  return (id == "." ? root : root / std::string(id)) / std::string(file);
}

}  // namespace hone
