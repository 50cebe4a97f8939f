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

enum class LengthScope { group, call };

// What cf_code makes of the tests that pass.
enum class CodeScoring : std::uint8_t {
  pass_fail,     // 1 where all pass
  partial,       // passed/total
  weighted_sum,  // pass_fail + 0.1 partial
};

inline constexpr std::string_view kStrictEqualityHelp =
    "Mathematical answers: refuse what Math-Verify forgives (rounding, units, bases, false chains, boxes in thoughts)";

// The recipe's keys that rewards read, with open-r1's names and defaults.
struct RewardOptions {
  bool strip_thoughts = false;   // accuracy and its kin: only what follows the last </think> counts
  bool strict_equality = false;  // accuracy and its kin: stricter rules than Math-Verify's, thoughts never count
  bool think_prefilled = false;  // the prompt ended in "<think>\n" and the completions lack it
  double cosine_min_value_wrong = 0.0;
  double cosine_max_value_wrong = -0.5;
  double cosine_min_value_correct = 0.5;
  double cosine_max_value_correct = 1.0;
  std::int64_t cosine_max_len = 1000;  // characters
  std::int64_t repetition_n_grams = 3;
  double repetition_max_penalty = -1.0;     // at most 0
  std::int64_t max_completion_len = 16384;  // tokens
  std::int64_t soft_punish_cache = 4096;    // tokens
  LengthScope length_scope = LengthScope::group;
  SandboxMode sandbox = SandboxMode::namespaces;
  std::string code_language = "python";        // code_format, where the row does not say
  std::int64_t code_eval_test_batch_size = 1;  // ioi_code, cf_code: tests between looks at whether one failed; -1: all
  CodeScoring code_eval_scoring_mode = CodeScoring::weighted_sum;  // cf_code
  std::vector<std::string> hidden;  // files and folders that programs of completions must not be able to read
  std::string cf_tests_folder;  // cf_code: of generated tests; empty: CF_TESTS_FOLDER of the environment, if it is set
  RowSource rows;               // of other data sets; rewards know none by themselves
};

struct Reward {
  std::string name;         // as in reward_funcs: "accuracy"
  std::string metric_name;  // as in metrics: "accuracy_reward"
  RewardFunction score;     // throws Error where the row lacks what the reward needs
};

// The reward that judges every completion by itself.
[[nodiscard]] RewardFunction each(std::function<std::optional<double>(const RewardInput&)> judge);

}  // namespace hone
