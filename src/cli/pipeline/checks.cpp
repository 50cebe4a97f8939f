#include "cli/pipeline/checks.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "cli/pipeline/problems.h"
#include "core/json_value.h"
#include "core/log.h"
#include "data/dataset.h"
#include "data/prompt_set.h"
#include "generate/collect.h"
#include "generate/options.h"
#include "generate/prompts.h"
#include "model/loaded_model.h"
#include "rl/grpo_run.h"
#include "rl/reward_options.h"
#include "rl/reward_trial.h"
#include "rl/rollout.h"
#include "system/process.h"
#include "train/foreign_keys.h"
#include "train/language_run.h"
#include "train/setup.h"

namespace hone {
namespace {

// Sets the environment variables of a recipe while its stage is checked, and then restores the previous values.
class StageEnvironment {
 public:
  explicit StageEnvironment(const OptionInput& input) {
    for (const auto& [name, value] : input.environment) {
      const char* before = std::getenv(name.c_str());
      before_.emplace_back(name, before != nullptr ? std::optional<std::string>(before) : std::nullopt);
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  StageEnvironment(const StageEnvironment&) = delete;
  StageEnvironment& operator=(const StageEnvironment&) = delete;
  ~StageEnvironment() {
    for (const auto& [name, value] : before_) {
      if (value) ::setenv(name.c_str(), value->c_str(), 1);
      if (!value) ::unsetenv(name.c_str());
    }
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

// Result of sample_rows().
struct SampledRows {
  Json first;              // the first usable row
  std::int64_t count = 0;  // usable rows found, at most the number wanted
};

// Searches a source for `wanted` usable rows, for which `use` throws no Error. Throws Error if there is none, or if the
// first 1,000 rows are all unusable.
SampledRows sample_rows(const Source& source, std::int64_t wanted, const std::function<void(const Json& row)>& use) {
  struct Enough {};
  constexpr std::int64_t kMaxUnusableRows = 1000;  // unusable rows before the first usable one
  SampledRows sampled;
  std::string reason;
  std::int64_t unusable = 0;
  BadRows bad;
  try {
    source.for_each_row(bad, [&](const Json& row, const RowPlace& place) {
      try {
        use(row);
      } catch (const Error& error) {
        if (reason.empty()) reason = text_of(*place.file, " ", place.unit, " ", place.number, ": ", error.what());
        if (sampled.count == 0 && ++unusable >= kMaxUnusableRows) throw Enough();
        return;
      }
      if (sampled.count == 0) sampled.first = row;
      if (++sampled.count >= wanted) throw Enough();
    });
  } catch (const Enough&) {
  }
  if (sampled.count > 0) return sampled;
  if (reason.empty()) reason = bad.count() > 0 ? bad.first().front() : "it has no rows";
  throw Error(source.name(), "has no usable row: " + reason);
}

// Runs the checks that all training stages share. Returns true if they passed and the model and the tokenizer exist, so
// that the stage can be prepared.
template <class Options>
bool check_training_inputs(const Options& options, const OptionInput& input, const StageKeys& stage,
                           Problems& problems) {
  bool is_whole = problems.run([&] { check_options(options, input); });
  problems.run([&] { (void)open_device(options.device); });
  const bool model_pending = stage.is_pending(options.model_name_or_path);
  const bool tokenizer_pending = stage.is_pending(
      options.tokenizer_name_or_path.empty() ? options.model_name_or_path : options.tokenizer_name_or_path);
  if (!model_pending && !options.model_name_or_path.empty()) {
    is_whole &= problems.run([&] { (void)resolve_model(options.model_name_or_path, options.model_revision); });
  }
  if (is_whole && !tokenizer_pending) is_whole &= problems.run([&] { (void)tokenizer_of(options); });
  return is_whole && !model_pending && !tokenizer_pending;
}

template <class Options>
bool has_pending_data(const Options& options, const StageKeys& stage) {
  return stage.is_pending(options.dataset_name) || stage.is_pending(options.dataset_mixture) ||
         stage.is_pending(options.eval_dataset_name);
}

template <class Options, class Prepare>
void check_language_stage(const StageKeys& stage, Problems& problems, const Prepare& prepare) {
  Options options;
  const std::optional<OptionInput> input = read_stage(options, stage, training_foreign_keys(), problems);
  if (!input) return;
  const StageEnvironment environment(*input);
  const bool has_model = check_training_inputs(options, *input, stage, problems);
  if (has_pending_data(options, stage)) return;
  if (has_model) {
    problems.run([&] { prepare(options); });
    return;
  }
  ColumnOptions columns{.text_field = options.dataset_text_field};
  bool is_prepared = false;
  SampleBy sample_by = SampleBy::kDocument;
  if constexpr (requires { options.sample_by; }) sample_by = options.sample_by;
  if constexpr (requires { options.dataset_kwargs; }) {
    columns.prompt_column = options.dataset_prompt_column;
    is_prepared = options.dataset_kwargs.skip_prepare_dataset;
  }
  problems.run([&] {
    const Source source = open_training_data(options, sample_by);
    (void)sample_rows(source, 1, [&](const Json& row) {
      if (!is_prepared) (void)kind_of(row, columns);
    });
  });
  bool is_split = false;
  if constexpr (requires { options.test_split_size; }) is_split = options.test_split_size > 0;
  if (options.evaluates() && !is_split) problems.run([&] { (void)open_eval_data(options, options, sample_by); });
}

void check_pretrain_stage(const StageKeys& stage, Problems& problems) {
  check_language_stage<PretrainOptions>(stage, problems,
                                        [](const PretrainOptions& options) { (void)prepare_pretrain(options); });
}

void check_sft_stage(const StageKeys& stage, Problems& problems) {
  check_language_stage<SftOptions>(stage, problems, [](const SftOptions& options) { (void)prepare_sft(options); });
}

// Checks that the data has enough prompts for one generation, and computes each reward for the first prompt.
void check_grpo_data(const GrpoOptions& options, const OptionInput& input, const StageKeys& stage, Problems& problems) {
  std::vector<Reward> rewards;
  for (const std::string& name : options.reward_funcs) {
    RewardKeys one = options;
    one.reward_funcs = {name};
    problems.run([&] { rewards.push_back(rewards_of(one, false, hidden_paths(options)).front()); });
  }
  GrpoBatch batch{.prompts = 1};
  problems.run([&] { batch = grpo_batch(options, 1, input); });
  if (has_pending_data(options, stage)) return;
  const ColumnOptions columns = prompt_columns(options);
  SampledRows rows;
  problems.run([&] {
    const Source source = open_training_data(options);
    rows = sample_rows(source, batch.prompts, [&](const Json& row) { (void)question_in(row, columns); });
    if (rows.count < batch.prompts) {
      throw Error(input.place_of("dataset_name"),
                  text_of(source.name(), " has ", rows.count, " prompts, but one generation needs ", batch.prompts));
    }
  });
  if (options.evaluates()) problems.run([&] { (void)open_eval_data(options, options); });
  if (rows.count == 0) return;
  const Json question = question_in(rows.first, columns);
  const RewardTrial trial{.row = rows.first, .question = question, .completions = options.num_generations};
  for (const Reward& reward : rewards) problems.run([&] { try_rewards({&reward, 1}, trial); });
}

void check_grpo_stage(const StageKeys& stage, Problems& problems) {
  GrpoOptions options;
  const std::optional<OptionInput> input = read_stage(options, stage, training_foreign_keys(), problems);
  if (!input) return;
  const StageEnvironment environment(*input);
  const bool has_model = check_training_inputs(options, *input, stage, problems);
  check_grpo_data(options, *input, stage, problems);
  if (!has_model || has_pending_data(options, stage) || !problems.all().empty()) return;
  problems.run([&] { (void)prepare_grpo(options, *input); });
}

void check_generate_stage(const StageKeys& stage, Problems& problems) {
  GenerateOptions options;
  const std::optional<OptionInput> input = read_stage(options, stage, training_foreign_keys(), problems);
  if (!input) return;
  const StageEnvironment environment(*input);
  const bool has_options = problems.run([&] { check_options(options, *input); });
  if (options.endpoint.empty() && !stage.is_pending(options.model_name_or_path)) {
    problems.run([&] { (void)load_tokenizer(resolve_model(options.model_name_or_path)); });
  }
  problems.run([&] { check_benchmarks(options); });
  if (!has_options || stage.is_pending(options.dataset_name)) return;
  problems.run([&] {
    GenerateOptions first = options;
    first.decontaminate.clear();
    first.dataset_end_index = options.dataset_start_index.value_or(0) + 1;
    GenerateCounts counts;
    try_rewards(options, read_prompts(first, nullptr, counts).front());
  });
}

void check_stage(std::string_view command, const StageKeys& stage, Problems& problems) {
  if (command == "pretrain") return check_pretrain_stage(stage, problems);
  if (command == "sft") return check_sft_stage(stage, problems);
  if (command == "grpo") return check_grpo_stage(stage, problems);
  if (command == "generate") return check_generate_stage(stage, problems);
  HONE_ASSERT(command == "eval", "no check for the stages of ", command);
  check_eval_stage(stage, problems);
}

}  // namespace

std::vector<std::string> problems_in(std::span<const Stage> stages, const std::vector<bool>& is_done,
                                     std::string_view file) {
  const QuietScope quiet;  // a stage logs these lines when it runs
  std::vector<std::string> all;
  std::vector<std::string> pending;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (is_done[i]) continue;
    Problems problems;
    check_stage(stages[i].kind->command, {stages[i].keys, file, pending}, problems);
    for (const std::string& problem : problems.all()) all.push_back(text_of("stage ", stages[i].name, ": ", problem));
    if (!stages[i].output.empty()) pending.push_back(stages[i].output);
  }
  return all;
}

}  // namespace hone
