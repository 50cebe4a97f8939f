// What a reward is: a function from a batch of completions to one number, or none, for each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/option_set.h"
#include "sandbox/mode.h"

namespace hone {

// How far the run is that asks.
struct RunProgress {
  std::int64_t step = 0;         // optimizer steps done
  std::int64_t total_steps = 0;  // 0: not a training run
  double epoch = 0;
};

// One completion to be judged. The views and the pointers stay the caller's.
struct RewardInput {
  std::string_view completion;   // without special tokens, an assistant prefill of the prompt prepended
  const Json* row = nullptr;     // the columns of the prompt's row; an object
  std::int64_t group = 0;        // which prompt of the batch; its completions share the number
  std::int64_t token_count = 0;  // tokens of the completion, EOS included
  bool ended = true;             // by EOS, rather than by the length limit
  const Json* prompt = nullptr;  // a text, or messages, as the row has it; null: not known
  std::span<const std::int32_t> completion_ids = {};  // its tokens; empty: not known
  RunProgress progress = {};                          // the same for all of a batch
};

// A score a completion; nothing where the reward has no opinion (it adds nothing to the completion's sum).
using RewardScores = std::vector<std::optional<double>>;
// A reward sees a whole batch at once, because some compare the completions of a group.
using RewardFunction = std::function<RewardScores(std::span<const RewardInput>)>;

// Rows of another data set, which a reward needs beside those that it judges: those whose `key_column` is the text
// `key`.
struct RowQuery {
  std::string dataset;  // a file, or ORG/NAME on the hub, of which the split train is meant
  std::string config;   // empty: the default one
  std::string key_column;
  std::string key;
  std::vector<std::string> columns;  // what is wanted of each row
};
// Calls `visit` with the texts of `columns`, row by row in order; they last for the call. Throws Error where the data
// set is not there or cannot be read, and where a row has no text in one of `columns`.
using RowSource =
    std::function<void(const RowQuery& query, const std::function<void(std::span<const std::string_view>)>& visit)>;

inline constexpr std::string_view kStrictEqualityHelp =
    "Mathematical answers: refuse what Math-Verify forgives (rounding, units, bases, false chains, boxes in thoughts)";

// The keys of a recipe that all registered rewards declare, with their defaults: open-r1's names and defaults.
[[nodiscard]] OptionSet reward_keys();

// What rewards are made with.
struct RewardOptions {
  OptionSet keys = reward_keys();
  bool think_prefilled = false;  // the prompt ended in "<think>\n" and the completions lack it
  SandboxMode sandbox = SandboxMode::namespaces;
  std::vector<std::string> hidden;  // files and folders that programs of completions must not be able to read
  RowSource rows;                   // of other data sets; rewards know none by themselves
};

struct Reward {
  std::string name;         // as in reward_funcs: "accuracy"
  std::string metric_name;  // as in metrics: "accuracy_reward"
  RewardFunction score;     // throws Error where the row lacks what the reward needs
};

// The reward that judges every completion by itself.
[[nodiscard]] RewardFunction each(std::function<std::optional<double>(const RewardInput&)> judge);

}  // namespace hone
