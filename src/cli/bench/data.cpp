#include <cstdio>
#include <numeric>
#include <optional>

#include "checkpoint/model_directory.h"
#include "cli/bench/documents.h"
#include "cli/bench/kind.h"
#include "cli/bench/results.h"
#include "cli/profile/timing.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "data/encode.h"
#include "data/loader.h"
#include "model/loaded_model.h"
#include "train/options.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

struct DataBenchOptions {
  std::string dataset_name;
  std::string tokenizer_name_or_path;
  std::int64_t max_length = 1024;
  PackingStrategy packing_strategy = PackingStrategy::kBfd;
  std::int64_t per_device_train_batch_size = 8;
  std::int64_t mebibytes = 4;
  double seconds = 1;
  std::string json;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Data");
    v("dataset_name", dataset_name, "File, folder or pattern of the data; unset: generated problems with solutions");
    v("tokenizer_name_or_path", tokenizer_name_or_path,
      "Folder of a tokenizer, or its name on the hub; needed with dataset_name");
    v("max_length", max_length, "Tokens of a packed row", at_least(2));
    v("packing_strategy", packing_strategy, "How rows are packed");
    v("per_device_train_batch_size", per_device_train_batch_size, "Rows of a batch", at_least(1));
    v("mebibytes", mebibytes, "Generated text in MiB", within(1, 4096));
    v.group("Measurement");
    v("seconds", seconds, "Seconds over which batches are read", above(0));
    v("json", json, "JSON file to write the results to");
  }
};

// The data and the tokenizer to measure, written into `scratch` if the options name none.
struct DataInput {
  fs::path data;
  Tokenizer tokenizer;
};
DataInput data_input(const DataBenchOptions& options, const fs::path& scratch) {
  if (!options.dataset_name.empty()) {
    if (options.tokenizer_name_or_path.empty())
      throw Error("tokenizer_name_or_path", "is not set", "name the folder of a tokenizer for dataset_name");
    return {options.dataset_name, load_tokenizer(resolve_model(options.tokenizer_name_or_path))};
  }
  const std::vector<std::string> documents = generated_documents(options.mebibytes << 20);
  std::string lines;
  for (const std::string& document : documents) lines += Json{{"text", document}}.dump() + "\n";
  write_file(scratch / "data.jsonl", lines);
  constexpr std::int64_t kVocabulary = 8192;
  return {scratch / "data.jsonl", options.tokenizer_name_or_path.empty()
                                      ? trained_tokenizer(documents, kVocabulary)
                                      : load_tokenizer(resolve_model(options.tokenizer_name_or_path))};
}

double file_bytes(const Source& source) {
  double bytes = 0;
  for (const SourcePart& part : source.parts()) {
    for (const fs::path& file : part.files) bytes += static_cast<double>(fs::file_size(file));
  }
  return bytes;
}

// Prints the figures of a stage and keeps them.
void add_stage(std::vector<ResultRow>& rows, const char* stage, const std::string& shape, double seconds, double amount,
               const char* unit) {
  std::printf("%-12s %10.3f s %16.1f %s\n", stage, seconds, amount / seconds, unit);
  std::fflush(stdout);
  rows.push_back({text_of("data ", stage), shape, amount / seconds, unit});
}

int data_bench(DataBenchOptions& options, const OptionInput&, const std::string& command) {
  const TemporaryFolder scratch(fs::temp_directory_path(), "hone-bench");
  const DataInput input = data_input(options, scratch.path());
  const Source source(input.data, {});
  const double megabytes = file_bytes(source) * 1e-6;
  const std::string shape =
      options.dataset_name.empty() ? text_of("generated text of ", options.mebibytes, " MiB") : options.dataset_name;
  std::printf("%s, %.1f MB\n", shape.c_str(), megabytes);
  std::vector<ResultRow> rows;

  auto start = Clock::now();
  BadRows bad;
  std::int64_t count = 0;
  source.for_each_row(bad, [&](Json&, const RowPlace&) { ++count; });
  add_stage(rows, "reading", shape, seconds_since(start), megabytes, "MB/s");

  start = Clock::now();
  EncodingReport report;
  const Packing packing = packing_from_name(name_of(options.packing_strategy));
  const ExampleSet set = encode_examples(
      source, input.tokenizer, chat_template_of(input.tokenizer),
      {.columns = {}, .max_length = cuts_long_examples(packing) ? options.max_length : 0, .eos_optional = true},
      report);
  const auto tokens = static_cast<double>(set.token_count());
  const double encoding = seconds_since(start);
  add_stage(rows, "encoding", shape, encoding, megabytes, "MB/s");
  add_stage(rows, "encoding", shape, encoding, tokens, "tokens/s");

  start = Clock::now();
  std::vector<std::uint32_t> all(static_cast<std::size_t>(set.size()));
  std::iota(all.begin(), all.end(), 0U);
  const PackedRows packed = pack(set, all, packing, options.max_length);
  add_stage(rows, "packing", shape, seconds_since(start), tokens, "tokens/s");
  const double full = tokens / static_cast<double>(packed.size() * options.max_length);

  const std::unique_ptr<BatchLoader> loader =
      make_row_loader(set, packed, {.rows_per_batch = options.per_device_train_batch_size});
  start = Clock::now();
  double read = 0;
  do {
    read += static_cast<double>(loader->next().token_count());
  } while (seconds_since(start) < options.seconds);
  add_stage(rows, "batches", shape, seconds_since(start), read, "tokens/s");
  std::printf("%s rows read, %s tokens, %s packed rows, %.1f%% full\n", format_count(count).c_str(),
              format_count(set.token_count()).c_str(), format_count(packed.size()).c_str(), 100 * full);
  rows.push_back({"data packing", shape, 100 * full, "% full"});
  if (!options.json.empty()) {
    write_results(options.json, rows, cpu_device().name(), command);
  }
  return 0;
}

}  // namespace

BenchKind bench_data() {
  return bench_kind("data", "reading, encoding, packing and batches, from files to a training step", data_bench);
}

}  // namespace hone
