// The keys of `hone generate`, with the names of open-r1's scripts where they have one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/device_option.h"
#include "core/options.h"
#include "engine/sampling_keys.h"
#include "rl/options.h"

namespace hone {

// What a line of the data is.
enum class DataForm : std::uint8_t {
  conversations,  // a completion that passed, as messages: for sft
  rows,           // a prompt's row with its completions and their rewards: for grpo
};
template <>
inline constexpr EnumTable kEnumTable<DataForm>{.names = "conversations|rows"};

struct GenerateOptions : SamplingKeys, RewardKeys {
  std::string model_name_or_path;
  std::string chat_template;
  std::string system_prompt;
  DeviceChoice device = DeviceChoice::automatic;

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
  std::int64_t max_num_seqs = 64;

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
  DataForm output_form = DataForm::conversations;
  bool easy_first = false;

  GenerateOptions() { reward_funcs.clear(); }

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path, "Folder of the model; with an endpoint, the model's name there");
    v("chat_template", chat_template, "Jinja text or a file of it, in place of the model's");
    v("system_prompt", system_prompt, "Put before conversations that have no system message");
    v("device", device, kDeviceHelp);
    endpoint_fields(v);
    data_fields(v);
    SamplingKeys::fields(v);
    v("num_generations", num_generations, "Completions a prompt", within(1, 1'000'000));
    v("max_new_tokens", max_new_tokens, "Tokens a completion", at_least(1));
    v.alias("max_completion_length", "max_new_tokens");
    v("max_num_seqs", max_num_seqs, "Completions that are generated, or asked for, at a time", at_least(1));
    RewardKeys::fields(v);
    filter_fields(v);
    v.group("Output");
    v("output_dir", output_dir, "Folder of generations.jsonl, which grows row by row, and of the filtered data.jsonl");
    v("output_dataset_name", output_dataset_name, "The same, where output_dir is unset");
    v("overwrite_output_dir", overwrite_output_dir, "Begin anew where output_dir holds generations already");
    v("output_form", output_form, "A line of data.jsonl: a completion as messages, or a prompt's row with all of them");
    v("easy_first", easy_first, "Order the data by pass rate, the highest first; else it is the dataset's order");
  }

 private:
  template <class Visitor>
  void endpoint_fields(Visitor& v) {
    v.group("Endpoint");
    v("endpoint", endpoint,
      "URL of an OpenAI-compatible server that generates in place of hone's engine, with or without /v1");
    v("endpoint_key_variable", endpoint_key_variable, "Environment variable that holds the server's API key");
    v("endpoint_timeout", endpoint_timeout, "Seconds that a completion may take", within(0.001, 1e6));
    v("endpoint_retries", endpoint_retries, "How often a request that fails in passing is sent again", at_least(0));
    v.alias("vllm_server_url", "endpoint");
  }

  template <class Visitor>
  void data_fields(Visitor& v) {
    v.group("Data");
    v("dataset_name", dataset_name, "File, folder or dataset of the prompts");
    v("dataset_config", dataset_config, "Configuration of the dataset");
    v("dataset_split", dataset_split, "Split of a folder or dataset");
    v("dataset_prompt_column", dataset_prompt_column, "Column of prompts; unset: prompt, problem or question");
    v("prompt_template", prompt_template,
      "Text of the user's message, {column} for a column's text; unset: the prompt");
    v("dataset_start_index", dataset_start_index, "First row, from 0", at_least(0));
    v("dataset_end_index", dataset_end_index, "Behind the last row", at_least(0));
    v("deduplicate", deduplicate, "Drop prompts that were there before, but for case and white space");
    v("decontaminate", decontaminate,
      "Benchmarks, as files, folders or datasets, `:COLUMN` behind where it is not their prompt's: prompts that share "
      "words with them are dropped");
    v("ngram_size", ngram_size,
      "decontaminate: that many words in a row are too many; prompts of fewer words are compared whole", at_least(1));
  }

  template <class Visitor>
  void filter_fields(Visitor& v) {
    v.group("Filters");
    v("min_reward", min_reward, "Keep completions of at least this reward; unset: 1 for conversations with rewards");
    v("pass_rate_min", pass_rate_min, "Keep prompts whose mean reward is above; unset: 0.1 where the other is set");
    v("pass_rate_max", pass_rate_max, "and below; unset: 0.9 where the other is set");
    v("require_end", require_end, "Keep completions that ended by themselves only");
    v("require_format", require_format, "Keep completions of the format <think>, <answer> only");
    v("min_completion_tokens", min_completion_tokens, "Keep completions of at least this many tokens", at_least(0));
    v("max_completion_tokens", max_completion_tokens, "and at most this many", at_least(1));
    v("max_per_prompt", max_per_prompt, "Conversations: keep so many completions a prompt, the first; 0: all",
      at_least(0));
  }
};

// Counts of one entry of decontaminate.
struct BenchmarkCounts {
  std::string name;
  std::int64_t prompts = 0;
  std::int64_t removed = 0;  // rows of the dataset that overlap with them; one may with several benchmarks
};

// What became of it all.
struct GenerateCounts {
  std::int64_t rows = 0;          // of the dataset, within the indices
  std::int64_t duplicates = 0;    // rows left out
  std::int64_t contaminated = 0;  // rows left out
  std::vector<BenchmarkCounts> benchmarks;
  std::int64_t prompts = 0;
  std::int64_t refused = 0;  // prompts that the endpoint would not answer
  std::int64_t completions = 0;
  std::int64_t pass_rate = 0;  // prompts left out by their pass rate
  std::int64_t length = 0;     // completions left out: by their length, or for want of an end
  std::int64_t format = 0;     // by their format
  std::int64_t reward = 0;     // by their reward
  std::int64_t repeated = 0;   // equal to an earlier one of the prompt, or beyond max_per_prompt
  std::int64_t kept = 0;       // lines of data.jsonl
};

// Throws Error where values contradict each other or something needed is unset.
void check_options(const GenerateOptions& options, const OptionInput& input);
// The folder that output_dir, or output_dataset_name, names.
[[nodiscard]] std::string output_folder(const GenerateOptions& options);

// Generates what output_dir does not hold yet, then filters it into data.jsonl. A run that was stopped goes on where it
// was: what it leaves is, to the bit, what one leaves that was never stopped. Throws Error, or Interrupted at Ctrl+C.
GenerateCounts generate(const GenerateOptions& options);

}  // namespace hone
