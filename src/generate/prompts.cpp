#include "generate/prompts.h"

#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/columns.h"
#include "data/dataset.h"
#include "data/journal.h"
#include "data/render.h"
#include "data/source.h"
#include "eval/math_task.h"
#include "generate/ngrams.h"
#include "reward/tags.h"

namespace hone {
namespace {

// Returns the split to read: a single file is read as a whole.
std::string split_for(const std::string& name, const std::string& split) { return is_file(name) ? "train" : split; }

// Opens the test split of a benchmark, or all of it if it has no such split.
Source open_benchmark(const std::string& name) {
  const DatasetName dataset{.name = name};
  if (is_file(name) || !names_splits(dataset)) return open_dataset(dataset, {});
  try {
    return open_dataset(dataset, {.split = "test"});
  } catch (const Error&) {
    return open_dataset(dataset, {});
  }
}

// Returns the text of the prompt column; if it contains messages, the text of the user's messages.
std::string prompt_text(const Json& row, std::string_view column) {
  if (is_text(row, column)) return text_in(row, column);
  std::string text;
  for (const Json& message : messages_in(row, column)) {
    if (message["role"] != "user" || !message.contains("content") || !message["content"].is_string()) continue;
    text += (text.empty() ? "" : "\n") + message["content"].get<std::string>();
  }
  return text;
}

std::string benchmark_text(const Json& row, const std::string& column) {
  if (!column.empty()) return column_text(row, column);
  for (const char* usual : {"problem", "question", "Question", "question_content", "prompt"}) {
    if (std::string text = column_text(row, usual); !text.empty()) return text;
  }
  throw Error("", "has none of the columns problem, question, Question, question_content and prompt",
              "name the column: decontaminate: FILE:COLUMN");
}

struct Benchmark {
  NgramSet ngrams;
  BenchmarkCounts counts;
};

Benchmark read_benchmark(const std::string& entry, std::int64_t ngram_size) {
  Benchmark benchmark{NgramSet(static_cast<std::size_t>(ngram_size)), {.name = entry}};
  std::string name = entry;
  std::string column;
  const std::size_t colon = entry.rfind(':');
  if (colon != std::string::npos && !std::filesystem::exists(entry)) {
    name = entry.substr(0, colon);
    column = entry.substr(colon + 1);
  }
  BadRows bad;
  std::int64_t& rows = benchmark.counts.prompts;
  open_benchmark(name).for_each_row(bad, [&](const Json& row, const RowPlace& place) {
    ++rows;
    try {
      benchmark.ngrams.add(benchmark_text(row, column));
    } catch (const Error& error) {
      throw Error(text_of(*place.file, " ", place.unit, " ", place.number), error.what());
    }
  });
  if (rows == 0 || bad.count() > 0) {
    throw Error("decontaminate", text_of(name, rows == 0 ? " has no rows" : " has a row that cannot be read"),
                bad.count() > 0 ? bad.first().front() : "");
  }
  return benchmark;
}

// Returns true if the text overlaps with a benchmark, and counts it for each benchmark with which it does.
bool is_contaminated(std::span<Benchmark> benchmarks, std::string_view text) {
  bool found = false;
  for (Benchmark& benchmark : benchmarks) {
    if (!benchmark.ngrams.overlaps(text)) continue;
    ++benchmark.counts.removed;
    found = true;
  }
  return found;
}

std::string contamination_text(const GenerateCounts& counts) {
  std::string text = text_of("decontaminate: ", format_count(counts.rows), " prompts checked, ",
                             format_count(counts.contaminated), " removed");
  const char* separator = ": ";
  for (const BenchmarkCounts& benchmark : counts.benchmarks) {
    text += text_of(separator, format_count(benchmark.removed), " for ", benchmark.name, " (",
                    format_count(benchmark.prompts), " prompts)");
    separator = ", ";
  }
  return text;
}

Json messages_of(Json& row, std::string_view column, const GenerateOptions& options) {
  Json messages;
  if (!options.prompt_template.empty()) {
    messages = Json::array({{{"role", "user"}, {"content", fill_template(options.prompt_template, row)}}});
  } else if (is_text(row, column)) {
    messages = Json::array({{{"role", "user"}, {"content", text_in(row, column)}}});
  } else {
    messages = messages_in(row, column);
  }
  add_system_prompt(messages, {.prompt_column = {}, .system_prompt = options.system_prompt});
  return messages;
}

// Renders the prompt and sets its key, tokens, prefill and opens_thoughts; for an endpoint, sets only the key.
void render(GeneratePrompt& prompt, const Json& messages, const PromptForm* form, const Json& variables) {
  if (form == nullptr) {
    prompt.key = content_key(prompt.messages);
    return;
  }
  RenderedPrompt rendered = render_prompt(messages, form->chat_template, variables);
  prompt.tokens = form->tokenizer.encode(rendered.text);
  if (prompt.tokens.empty()) throw Error("the chat template renders the prompt as an empty text");
  prompt.prefill = std::move(rendered.prefill);
  prompt.opens_thoughts = prompt.prefill.empty() && rendered.text.ends_with(kThinkOpening);
  prompt.key = content_key(rendered.text);
}

bool is_within(std::int64_t index, const GenerateOptions& options) {
  return index >= options.dataset_start_index.value_or(0) &&
         (!options.dataset_end_index || index < *options.dataset_end_index);
}

}  // namespace

std::vector<GeneratePrompt> read_prompts(const GenerateOptions& options, const PromptForm* form,
                                         GenerateCounts& counts) {
  std::vector<Benchmark> benchmarks;
  benchmarks.reserve(options.decontaminate.size());
  for (const std::string& entry : options.decontaminate) {
    benchmarks.push_back(read_benchmark(entry, options.ngram_size));
  }
  const Json variables = form == nullptr ? Json::object() : template_variables(form->tokenizer);
  const ColumnOptions columns{.prompt_column = options.dataset_prompt_column};
  const Source source = open_dataset({.name = options.dataset_name, .config = options.dataset_config},
                                     {.split = split_for(options.dataset_name, options.dataset_split)});
  std::vector<GeneratePrompt> prompts;
  std::unordered_set<std::string> seen;
  std::unordered_map<std::string, int> occurrences;
  std::int64_t index = 0;
  BadRows bad;
  source.for_each_row(bad, [&](Json& row, const RowPlace& place) {
    if (!is_within(index++, options)) return;
    ++counts.rows;
    try {
      const std::string_view column = prompt_column_of(row, columns);
      const std::string text = prompt_text(row, column);
      if (is_contaminated(benchmarks, text)) {
        ++counts.contaminated;
        return;
      }
      if (options.deduplicate && !seen.insert(normalized_words(text)).second) {
        ++counts.duplicates;
        return;
      }
      GeneratePrompt prompt;
      prompt.is_text = !options.prompt_template.empty() || is_text(row, column);
      const Json messages = messages_of(row, column, options);
      prompt.messages = messages.dump(-1, ' ', false, Json::error_handler_t::replace);
      if (!options.endpoint.empty() && messages.back()["role"] == "assistant") {
        throw Error("an endpoint cannot continue a message of the assistant");
      }
      render(prompt, messages, form, row_variables(row, variables));
      if (const int count = ++occurrences[prompt.key]; count > 1) prompt.key += text_of("-", count);
      prompt.row = row.dump(-1, ' ', false, Json::error_handler_t::replace);
      prompts.push_back(std::move(prompt));
    } catch (const Error& error) {
      throw Error(text_of(*place.file, " ", place.unit, " ", place.number), error.what());
    }
  });
  if (const std::string left_out = bad.describe(index + bad.count()); !left_out.empty()) log_warning(left_out);
  if (counts.rows == 0) throw Error("dataset_name", text_of(options.dataset_name, " has no rows within the indices"));
  for (const Benchmark& benchmark : benchmarks) counts.benchmarks.push_back(benchmark.counts);
  if (!benchmarks.empty()) log_info(contamination_text(counts));
  if (prompts.empty()) throw Error("dataset_name", "no prompt is left", "all prompts are duplicates or contaminated");
  counts.prompts = std::ssize(prompts);
  return prompts;
}

void check_benchmarks(const GenerateOptions& options) {
  for (const std::string& entry : options.decontaminate) (void)read_benchmark(entry, options.ngram_size);
}

Json question_of(const GeneratePrompt& prompt) {
  Json messages = parse_json(prompt.messages, "messages");
  if (prompt.is_text) return messages.back()["content"];
  if (messages.size() > 1 && messages.back()["role"] == "assistant") messages.erase(messages.size() - 1);
  return messages;
}

namespace {

// The most probable tokens of each place, as objects from ids to log-probabilities.
Json listed_json(std::span<const std::vector<TokenLogprob>> places) {
  Json list = Json::array();
  for (const std::vector<TokenLogprob>& place : places) {
    Json tokens = Json::object();
    for (const TokenLogprob& token : place) tokens[std::to_string(token.token)] = token.logp;
    list.push_back(std::move(tokens));
  }
  return list;
}

// Returns the tokens of a completion and their log-probabilities, which it has if they are written.
const Completion& scored_of(const GeneratedText& completion) {
  HONE_ASSERT(completion.scored, "a completion has no log-probabilities");
  return *completion.scored;
}

void add_logprobs(const GenerateOptions& options, const GeneratePrompt& prompt,
                  std::span<const GeneratedText> completions, Json& row) {
  if (options.logprobs) {
    // The data may have columns of these names, if it was generated itself.
    row["completion_ids"] = row["completion_logprobs"] = Json::array();
    if (*options.logprobs > 0) row["completion_top_logprobs"] = Json::array();
    for (const GeneratedText& completion : completions) {
      const Completion& scored = scored_of(completion);
      row["completion_ids"].push_back(scored.tokens);
      row["completion_logprobs"].push_back(scored.logps);
      if (*options.logprobs > 0) row["completion_top_logprobs"].push_back(listed_json(scored.top_logprobs));
    }
  }
  if (!options.prompt_logprobs) return;
  const Completion& scored = scored_of(completions.front());
  row["prompt_ids"] = prompt.tokens;
  row["prompt_logprobs"] = Json::array({nullptr});
  for (const float logp : scored.prompt_logps) row["prompt_logprobs"].push_back(logp);
  if (*options.prompt_logprobs == 0) return;
  row["prompt_top_logprobs"] = Json::array({nullptr});
  for (Json& place : listed_json(scored.prompt_top_logprobs)) row["prompt_top_logprobs"].push_back(std::move(place));
}

}  // namespace

Json journal_row(const GenerateOptions& options, const GeneratePrompt& prompt,
                 std::span<const GeneratedText> completions) {
  Json row = parse_json(prompt.row, "row");
  row["generations"] = Json::array();
  row["finish_reasons"] = Json::array();
  row["completion_tokens"] = Json::array();
  for (const GeneratedText& completion : completions) {
    row["generations"].push_back(completion.text);
    row["finish_reasons"].push_back(completion.finish_reason);
    row["completion_tokens"].push_back(completion.tokens);
  }
  add_logprobs(options, prompt, completions, row);
  row[kPromptHash] = prompt.key;
  return row;
}

}  // namespace hone
