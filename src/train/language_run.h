// Prepares and runs `hone pretrain` and `hone sft`. The memory of a run is known, and checked, before any device memory
// is allocated.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "data/loader.h"
#include "model/loaded_model.h"
#include "train/language_programs.h"
#include "train/options.h"
#include "train/trainer.h"

namespace hone {

// Everything that a run needs before its weights are loaded.
struct LanguageRun {
  std::string command;
  TrainingOptions options;
  std::string options_json;  // values in effect
  std::string model_name;    // as named in the recipe
  std::string data_text;     // "chats.jsonl (1,500 documents)"
  Tokenizer tokenizer;
  std::unique_ptr<Model> model = nullptr;
  std::unique_ptr<ModelDirectory> initial = nullptr;  // null: random weights
  std::string generation_config = "{}";               // JSON
  DType dtype = DType::kF32;
  SftLoss loss = SftLoss::kNll;  // loss of training and evaluation
  std::unique_ptr<BatchLoader> batches = nullptr;
  std::unique_ptr<BatchLoader> eval_batches = nullptr;  // null: no evaluation
  std::int64_t total_steps = 0;
  std::vector<RunObserver*> observers = {};  // must outlive the run
  Job job = {};                              // the processes that train together
  std::size_t benchmark_bytes_held = 0;  // device bytes that benchmarks of checkpoints allocate between steps (setup.h)
};

// Read data, tokenizer and configuration, but no weights. Throw Error if the options do not fit them.
[[nodiscard]] LanguageRun prepare_pretrain(const PretrainOptions& options);
[[nodiscard]] LanguageRun prepare_sft(const SftOptions& options);

// Returns what determines the programs of a run, and traces them. Allocates nothing.
[[nodiscard]] LanguageSizes sizes_of(const LanguageRun& run);
[[nodiscard]] Workspace trace_run(const LanguageRun& run);
// Returns the device bytes that the run would take with other training options.
[[nodiscard]] RunBytes bytes_of(const LanguageRun& run);

// Loads or initialises the weights, trains and writes the model. Returns the last logged metrics. Throws Error if the
// run does not fit the memory of its device.
MetricValues train(LanguageRun& run);

}  // namespace hone
