// Options of `hone generate`, named as in the scripts of open-r1 if they exist there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/device_option.h"
#include "core/options.h"
#include "data/shared_journal.h"
#include "engine/engine_options.h"
#include "engine/sampling_keys.h"
#include "model/loaded_model.h"
#include "model/quantization.h"
#include "rl/options.h"

namespace hone {

class EngineGroup;

// Content of a line of data.jsonl.
enum class DataForm : std::uint8_t {
  kConversations,  // one completion that passed the filters, as messages, for sft
  kRows,           // the row of a prompt with all its completions and rewards, for grpo
};
template <>
inline constexpr EnumTable kEnumTable<DataForm>{.names = "conversations|rows"};

struct GenerateOptions : SamplingKeys, RewardKeys {
  std::string model_name_or_path;
  std::string chat_template;
  std::string system_prompt;
  Quantization quantization = Quantization::kAutomatic;
  DeviceChoice device = DeviceChoice::kAutomatic;
  std::int64_t tensor_parallel_size = 1;
  std::int64_t data_parallel_size = 1;

  std::string endpoint;
  std::string endpoint_key_variable = "OPENAI_API_KEY";
  double endpoint_timeout = 600;
  std::int64_t endpoint_retries = 8;

  std::string dataset_name;
  std::string dataset_config;
  std::string dataset_split = "train";
  std::string dataset_prompt_column;
  std::string prompt_template;
  std::optional<std::int64_t> dataset_start_index;
  std::optional<std::int64_t> dataset_end_index;
  bool deduplicate = false;
  std::vector<std::string> decontaminate;
  std::int64_t ngram_size = 8;

  std::int64_t num_generations = 1;
  std::int64_t max_new_tokens = 8192;
  std::int64_t max_num_seqs = 0;
  std::int64_t num_speculative_tokens = 0;
  std::optional<std::int64_t> logprobs;
  std::optional<std::int64_t> prompt_logprobs;
  SpeculativeMethod speculative_method = SpeculativeMethod::kNgram;
  CacheOptions cache;

  std::optional<double> min_reward;
  std::optional<double> pass_rate_min;
  std::optional<double> pass_rate_max;
  bool require_end = true;
  bool require_format = false;
  std::int64_t min_completion_tokens = 0;
  std::optional<std::int64_t> max_completion_tokens;
  std::int64_t max_per_prompt = 0;

  std::string output_dir;
  std::string output_dataset_name;
  bool overwrite_output_dir = false;
  DataForm output_form = DataForm::kConversations;
  bool easy_first = false;

  GenerateOptions() { reward_funcs.clear(); }

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path,
      "Folder of the model; with an endpoint, name of the model on the server");
    v("chat_template", chat_template, "Jinja text, or a file with it, that replaces the model's chat template");
    v("system_prompt", system_prompt, "System message for conversations that have none");
    v("quantization", quantization, kQuantizationHelp);
    v("device", device, kDeviceHelp);
    v("tensor_parallel_size", tensor_parallel_size, kTensorGroupHelp, within(1, 1024));
    v("data_parallel_size", data_parallel_size, kSharesHelp, within(1, 1024));
    endpoint_fields(v);
    data_fields(v);
    SamplingKeys::fields(v);
    v("num_generations", num_generations, "Completions per prompt", within(1, 1'000'000));
    v("max_new_tokens", max_new_tokens, "Maximum tokens per completion", at_least(1));
    v.alias("max_completion_length", "max_new_tokens");
    v("max_num_seqs", max_num_seqs,
      "Completions that are generated or requested concurrently; 0: 256 on a GPU, otherwise 64", at_least(0));
    v("num_speculative_tokens", num_speculative_tokens, kSpeculativeTokensHelp, within(0, 64));
    v("speculative_method", speculative_method, kSpeculativeMethodHelp);
    cache.fields(v);
    v("logprobs", logprobs,
      "Write the ids and log-probabilities of each completion's tokens, and so many of the most probable tokens in the "
      "place of each, to generations.jsonl",
      within(0, 20));
    v("prompt_logprobs", prompt_logprobs,
      "Write the ids and log-probabilities of each prompt's tokens, and so many of the most probable tokens in the "
      "place "
      "of each, to generations.jsonl",
      within(0, 20));
    RewardKeys::fields(v);
    filter_fields(v);
    v.group("Output");
    v("output_dir", output_dir,
      "Folder of generations.jsonl, to which rows are appended, and of the filtered data.jsonl");
    v("output_dataset_name", output_dataset_name, "Same as output_dir; used if output_dir is unset");
    v("overwrite_output_dir", overwrite_output_dir, "Delete the generations in output_dir and start again");
    v("output_form", output_form,
      "Content of a line of data.jsonl: one completion as messages, or a prompt's row with all its completions");
    v("easy_first", easy_first, "Order the data by pass rate, highest first; false: keep the order of the dataset");
  }

 private:
  template <class Visitor>
  void endpoint_fields(Visitor& v) {
    v.group("Endpoint");
    v("endpoint", endpoint,
      "URL of an OpenAI-compatible server that generates instead of hone's engine, with or without /v1");
    v("endpoint_key_variable", endpoint_key_variable, "Environment variable with the server's API key");
    v("endpoint_timeout", endpoint_timeout, "Maximum seconds per completion", within(0.001, 1e6));
    v("endpoint_retries", endpoint_retries, "Retries of a request after a temporary failure", at_least(0));
    v.alias("vllm_server_url", "endpoint");
  }

  template <class Visitor>
  void data_fields(Visitor& v) {
    v.group("Data");
    v("dataset_name", dataset_name, "File, folder or dataset with the prompts");
    v("dataset_config", dataset_config, "Configuration of the dataset");
    v("dataset_split", dataset_split, "Split of a folder or dataset");
    v("dataset_prompt_column", dataset_prompt_column, "Column with the prompts; unset: prompt, problem or question");
    v("prompt_template", prompt_template,
      "Template of the user's message; {column} is replaced by the column's text; unset: the prompt");
    v("dataset_start_index", dataset_start_index, "Index of the first row, from 0", at_least(0));
    v("dataset_end_index", dataset_end_index, "Index after the last row", at_least(0));
    v("deduplicate", deduplicate, "Drop prompts that repeat an earlier one, ignoring case and white space");
    v("decontaminate", decontaminate,
      "Benchmarks (files, folders or datasets, with `:COLUMN` if their prompts are in an unusual column): drop prompts "
      "that share ngram_size consecutive words with them");
    v("ngram_size", ngram_size,
      "decontaminate: number of consecutive words; prompts with fewer words are compared as a whole", at_least(1));
  }

  template <class Visitor>
  void filter_fields(Visitor& v) {
    v.group("Filters");
    v("min_reward", min_reward, "Keep completions with at least this reward; unset: 1 for conversations with rewards");
    v("pass_rate_min", pass_rate_min, "Keep prompts with a mean reward above this; unset: 0.1 if pass_rate_max is set");
    v("pass_rate_max", pass_rate_max, "Keep prompts with a mean reward below this; unset: 0.9 if pass_rate_min is set");
    v("require_end", require_end, "Keep only completions that were not cut by the length limit");
    v("require_format", require_format, "Keep only completions in the format <think>, <answer>");
    v("min_completion_tokens", min_completion_tokens, "Keep completions with at least this many tokens", at_least(0));
    v("max_completion_tokens", max_completion_tokens, "Keep completions with at most this many tokens", at_least(1));
    v("max_per_prompt", max_per_prompt, "Conversations: keep only the first completions of each prompt; 0: all",
      at_least(0));
  }
};

// Counts for one benchmark of `decontaminate`.
struct BenchmarkCounts {
  std::string name;
  std::int64_t prompts = 0;  // prompts of the benchmark
  std::int64_t removed = 0;  // rows of the dataset that overlap with it; a row may overlap with several benchmarks
};

// Counts of rows, prompts and completions of one run.
struct GenerateCounts {
  std::int64_t rows = 0;          // rows of the dataset within the indices
  std::int64_t duplicates = 0;    // rows dropped as duplicates
  std::int64_t contaminated = 0;  // rows dropped because they overlap with a benchmark
  std::vector<BenchmarkCounts> benchmarks;
  std::int64_t prompts = 0;  // rows that remain
  std::int64_t refused = 0;  // prompts that the endpoint refused
  std::int64_t completions = 0;
  std::int64_t pass_rate = 0;  // prompts dropped by their pass rate
  std::int64_t length = 0;     // completions dropped by their length or because they did not end
  std::int64_t format = 0;     // completions dropped by their format
  std::int64_t reward = 0;     // completions dropped by their reward
  std::int64_t repeated = 0;   // completions dropped as duplicates or beyond max_per_prompt
  std::int64_t kept = 0;       // lines of data.jsonl
};

// Throws Error if a required option is unset or if options contradict each other.
void check_options(const GenerateOptions& options, const OptionInput& input);
// Returns the folder that output_dir or, if that is unset, output_dataset_name names.
[[nodiscard]] std::string output_folder(const GenerateOptions& options);

// The share of the prompts that this process has (data_parallel_size).
struct GenerateShare {
  Share own = {};
  std::function<std::unique_ptr<OtherShares>()> start_others = {};  // for the first of several
};

// Generates the completions that output_dir lacks and filters all of them into data.jsonl. An interrupted run continues
// where it stopped, and its result is bit for bit the result of an uninterrupted run. group: the ranks that have parts
// of the model, of which this is the first. A process with another share than the first only generates. Throws Error,
// and Interrupted after Ctrl+C.
GenerateCounts generate(const GenerateOptions& options, EngineGroup* group = nullptr, const GenerateShare& share = {});
// Loads the model, or this rank's part of it.
[[nodiscard]] LoadedModel load_generator(const GenerateOptions& options, EngineGroup* group);

}  // namespace hone
