// Interface of a reward: a function that maps a batch of completions to one score, or no score, per completion.
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

// Progress of the training run that requests the scores.
struct RunProgress {
  std::int64_t step = 0;         // completed optimizer steps
  std::int64_t total_steps = 0;  // 0: not a training run
  double epoch = 0;              // completed passes over the data, with a fraction
};

// Completion to be judged. The caller keeps ownership of everything that the views and pointers refer to.
struct RewardInput {
  std::string_view completion;   // text without special tokens, after the assistant prefill of the prompt, if any
  const Json* row = nullptr;     // object with the columns of the prompt's row
  std::int64_t group = 0;        // index of the prompt in the batch; completions of one prompt share it
  std::int64_t token_count = 0;  // tokens of the completion, including EOS
  bool ended = true;             // true: ended by EOS; false: cut by the length limit
  const Json* prompt = nullptr;  // a text or a list of messages, as in the row; null: unknown
  std::span<const std::int32_t> completion_ids = {};  // [token_count] token ids; empty: unknown
  RunProgress progress = {};                          // the same for the whole batch
};

// One score per completion. A completion without a value gets nothing from this reward: its weighted sum omits it.
using RewardScores = std::vector<std::optional<double>>;
// A reward receives a whole batch, because some rewards compare the completions of a group with each other.
using RewardFunction = std::function<RewardScores(std::span<const RewardInput>)>;
// The completions on which a score depends.
enum class RewardScope : std::uint8_t {
  kCompletion,  // its own only: a batch may be scored in parts, on any thread
  kBatch,
};

// Query for the rows of another dataset whose column `key_column` contains the text `key`, such as the stored tests of
// a problem.
struct RowQuery {
  std::string dataset;  // a file, or ORG/NAME on the hub, whose split "train" is used
  std::string config;   // empty: the default configuration
  std::string key_column;
  std::string key;
  std::vector<std::string> columns;  // columns to return
};
// Calls `visit` for each matching row, in order, with the texts of `columns`; the views are valid during the call.
// Throws Error if the dataset does not exist or cannot be read, or if one of `columns` contains no text in a row.
using RowSource =
    std::function<void(const RowQuery& query, const std::function<void(std::span<const std::string_view>)>& visit)>;

inline constexpr std::string_view kStrictEqualityHelp =
    "Mathematical answers: refuse what Math-Verify forgives (rounding, units, bases, false chains, boxes in thoughts)";

// Returns the recipe keys of all registered rewards with their default values. Names and defaults are those of open-r1.
[[nodiscard]] OptionSet reward_keys();

// Options from which rewards are built.
struct RewardOptions {
  OptionSet keys = reward_keys();
  bool think_prefilled = false;  // the prompts end in "<think>\n", so the completions do not begin with it
  SandboxMode sandbox = SandboxMode::kNamespaces;
  std::vector<std::string> hidden;  // files and folders that the programs in completions must not be able to read
  RowSource rows;                   // reads rows of other datasets; empty: rewards cannot read any
};

struct Reward {
  std::string name;         // name in reward_funcs: "accuracy"
  std::string metric_name;  // name in the metrics: "accuracy_reward"
  RewardFunction score;     // throws Error if a row lacks a column that the reward needs
  RewardScope scope = RewardScope::kBatch;
};

// Returns a reward that calls `judge` for each completion separately.
[[nodiscard]] RewardFunction each(std::function<std::optional<double>(const RewardInput&)> judge);

}  // namespace hone
