// Runs of `hone pretrain` and `hone sft`: from options to everything that the first step needs, without a byte of the
// device allocated before it is known to fit.
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

// Ready to start.
struct LanguageRun {
  std::string command;
  TrainingOptions options;
  std::string options_json;  // as in effect
  std::string model_name;    // as the recipe names it
  std::string data_text;     // "chats.jsonl (1,500 documents)"
  Tokenizer tokenizer;
  std::unique_ptr<Model> model = nullptr;
  std::unique_ptr<ModelDirectory> initial = nullptr;  // null: random weights
  std::string generation_config = "{}";               // JSON
  DType dtype = DType::f32;
  SftLoss loss = SftLoss::nll;  // of training and of evaluations
  std::unique_ptr<BatchLoader> batches = nullptr;
  std::unique_ptr<BatchLoader> eval_batches = nullptr;  // may stay null
  std::int64_t total_steps = 0;
  std::vector<RunObserver*> observers = {};  // outlive the run
  std::size_t beside_bytes = 0;              // of the device, which others take while a step is not under way
};

// Read data, tokenizer and configuration, but no weights. Throw Error.
[[nodiscard]] LanguageRun prepare_pretrain(const PretrainOptions& options);
[[nodiscard]] LanguageRun prepare_sft(const SftOptions& options);

// A run's programs, kTrainingProgram, kEvaluationProgram where there is something to evaluate on, and that of the
// update, with the memory that they take; nothing is allocated.
[[nodiscard]] Workspace trace_run(const LanguageRun& run);
// What the programs depend on beside the options of training.
struct LanguageSizes {
  const Model* model = nullptr;
  DType dtype = DType::f32;
  SftLoss loss = SftLoss::nll;
  BatchLimits limits;
  std::int64_t rows = 1;  // the per_device_train_batch_size that the limits are of
  std::optional<BatchLimits> eval_limits;
  std::size_t beside_bytes = 0;  // as LanguageRun has it
};
[[nodiscard]] LanguageSizes sizes_of(const LanguageRun& run);
[[nodiscard]] Workspace trace_run(const LanguageSizes& sizes, const TrainingOptions& options);
// The bytes it would take with other options, of which per_device_train_batch_size scales the batches.
[[nodiscard]] std::size_t bytes_with(const LanguageRun& run, const TrainingOptions& options);

// Trains; returns the last logged metrics.
MetricValues train(LanguageRun& run);

}  // namespace hone
