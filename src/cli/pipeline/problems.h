// Collects the problems that the checks of a pipeline stage find, instead of stopping at the first one.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/options.h"

namespace hone {

class Problems {
 public:
  // Runs a check and adds the Error that it throws, if any. Returns true if it threw none.
  template <class Check>
  bool run(const Check& check) {
    try {
      check();
      return true;
    } catch (const Error& error) {
      add(error.what());
      return false;
    }
  }
  // Adds a problem that is not in the list yet.
  void add(std::string problem) {
    if (std::ranges::find(all_, problem) == all_.end()) all_.push_back(std::move(problem));
  }
  [[nodiscard]] const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
};

// Keys of a stage, as its command will read them.
struct StageKeys {
  const YamlValue& keys;                 // a map, with the line numbers of `file`
  std::string_view file;                 // path of the pipeline's recipe
  std::span<const std::string> pending;  // paths that earlier stages will write and that do not exist yet

  // Returns true if the value contains a path that an earlier stage will write.
  [[nodiscard]] bool is_pending(std::string_view value) const {
    return std::ranges::any_of(pending, [&](const std::string& output) { return value.find(output) != value.npos; });
  }
  [[nodiscard]] bool is_pending(const YamlValue& value) const {
    return is_pending(value.scalar) ||
           std::ranges::any_of(value.items, [&](const auto& item) { return is_pending(item); });
  }
};

// Reads the keys into `options` and returns the input. If a key is wrong, returns nothing and adds a problem for each
// wrong key.
template <class Options>
[[nodiscard]] std::optional<OptionInput> read_stage(Options& options, const StageKeys& stage,
                                                    std::span<const ForeignKey> foreign, Problems& problems) {
  OptionInput input;
  Problems first;
  if (first.run([&] { read_option_keys(OptionTable(options), stage.keys, stage.file, foreign, input); })) return input;
  const std::size_t before = problems.all().size();
  for (std::size_t i = 0; i < stage.keys.keys.size(); ++i) {
    YamlValue one{.kind = YamlValue::Kind::kMap, .line = stage.keys.items[i].line};
    one.keys.push_back(stage.keys.keys[i]);
    one.items.push_back(stage.keys.items[i]);
    Options unused;
    OptionInput alone;
    problems.run([&] { read_option_keys(OptionTable(unused), one, stage.file, foreign, alone); });
  }
  // Each key alone is valid, so the error is about a combination of keys, such as a key and its alias.
  if (problems.all().size() == before) problems.add(first.all().front());
  return std::nullopt;
}

// Checks a stage that `hone eval` runs. Defined in cli/eval/eval.cpp, next to the options of that command.
void check_eval_stage(const StageKeys& stage, Problems& problems);

}  // namespace hone
