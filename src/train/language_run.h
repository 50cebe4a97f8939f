// Prepares and runs `hone pretrain` and `hone sft`. The memory of a run is known, and checked, before any device memory
// is allocated.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "data/loader.h"
#include "model/loaded_model.h"
#include "train/loss_program.h"
#include "train/options.h"
#include "train/trainer.h"
#include "workspace/workspace.h"

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
  std::size_t benchmark_bytes_held = 0;  // device bytes that benchmarks of checkpoints allocate between steps (setup.h)
};

// Read data, tokenizer and configuration, but no weights. Throw Error if the options do not fit them.
[[nodiscard]] LanguageRun prepare_pretrain(const PretrainOptions& options);
[[nodiscard]] LanguageRun prepare_sft(const SftOptions& options);

// Traces kTrainingProgram, kEvaluationProgram (if there is evaluation data) and the update into a workspace, whose
// memory() is then known. Allocates nothing.
[[nodiscard]] Workspace trace_run(const LanguageRun& run);
// The part of a run, in addition to the training options, that determines its programs.
struct LanguageSizes {
  const Model* model = nullptr;
  DType dtype = DType::kF32;
  SftLoss loss = SftLoss::kNll;
  BatchLimits limits;
  std::int64_t rows = 1;  // per_device_train_batch_size to which `limits` belong
  std::optional<BatchLimits> eval_limits;
  std::size_t benchmark_bytes_held = 0;  // LanguageRun::benchmark_bytes_held
};
[[nodiscard]] LanguageSizes sizes_of(const LanguageRun& run);
// The same with other training options; per_device_train_batch_size scales the capacity of the training program.
[[nodiscard]] Workspace trace_run(const LanguageSizes& sizes, const TrainingOptions& options);
// Returns the device bytes that the run would take with other training options.
[[nodiscard]] std::size_t bytes_with(const LanguageRun& run, const TrainingOptions& options);

// Loads or initialises the weights, trains and writes the model. Returns the last logged metrics. Throws Error if the
// run does not fit the memory of its device.
MetricValues train(LanguageRun& run);

}  // namespace hone
