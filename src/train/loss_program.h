// The programs that a micro-batch runs through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compile/compiler.h"
#include "data/host_batch.h"
#include "model/model.h"
#include "program/executable.h"
#include "train/model_figures.h"

namespace hone {

// How a loss is traced and compiled.
struct LossProgramOptions {
  Capacity capacity;
  CompileOptions compile = {};
  bool dynamic = false;  // each token's loss times its probability, held constant (dft)
};

// A loss as it is traced: the program, the batch and, per token, the log-probability of its target.
struct LossTrace {
  Program program;
  Tensor logp;     // f32 [tokens]; 0 where there is no target
  Tensor entropy;  // f32 [tokens]
  Tensor hit;      // f32 [tokens]: 1 where the target is the likeliest token
  std::vector<AddedLoss> losses;
  std::vector<ModelStatistic> statistics;
};

struct LogProbabilityOptions {
  double temperature = 1.0;
  bool trainable = false;  // the weights
  bool learns = false;     // the model's own losses and figures are computed
  bool dropout = false;    // as the model's configuration says, else none
};
// tokens -> log p(target), with inputs "targets" and those of DocumentBatch.
void trace_log_probabilities(LossTrace& trace, const Model& model, const Capacity& capacity,
                             const LogProbabilityOptions& options);
// loss = sum of loss_weights[t] x -log p(target[t]), with `dynamic` times p(target[t]), which gets no gradient (Wu et
// al., "On the generalization of SFT", 2025); accumulates the gradients of all weights. Outputs [1]:
// "loss"; "entropy" and "hits" (how often the target was the likeliest token), sums over the tokens that input
// "counted" marks with 1; and the model's own losses and figures (train/model_figures.h), the losses in "loss" too. A
// model with dropouts drops.
[[nodiscard]] Program trace_training(const Model& model, const LossProgramOptions& options);
// The same without gradients and dropouts: evaluation.
[[nodiscard]] Program trace_evaluation(const Model& model, const LossProgramOptions& options);

// The work of a program's run on a batch, whose documents see themselves alone.
struct BatchWork {
  double per_token = 0;  // FLOPs
  double per_pair = 0;   // FLOPs for a token and itself or one before it in its document
  [[nodiscard]] double flops(const HostBatch& batch) const;
};
// From the costs of a program with room for so many tokens.
[[nodiscard]] BatchWork work_of(const Program& program, std::int64_t tokens);

// Writes tokens, positions and cu_seqlens, and sets the counts.
void feed(Executable& executable, const HostBatch& batch);

// The names of those programs in a workspace.
inline constexpr const char* kTrainingProgram = "training";
inline constexpr const char* kEvaluationProgram = "evaluation";

// What one launch gives.
struct LossReading {
  float loss = 0;  // as weighted
  float entropy = 0;
  float hits = 0;
  std::int64_t target_tokens = 0;
  std::int64_t tokens = 0;
  std::vector<float> figures;  // as ModelFigures has them
};

// Sums over the target tokens of what ran.
struct LossSums {
  double loss = 0;  // as weighted
  double entropy = 0;
  double hits = 0;
  double target_tokens = 0;
  ModelFigures figures;  // of the model's own
  void add(const LossReading& reading);
};

// Launches that are not waited for one by one: the micro-batches of a step. What dropouts draw depends on seed, step
// and which of the launches it is.
class LossLaunches {
 public:
  LossLaunches(Executable& executable, std::size_t most, std::uint64_t seed = 0, std::int64_t step = 0)
      : executable_(executable), seed_(seed), step_(step), figures_(executable.program()) {
    readings_.reserve(most);
  }
  LossLaunches(const LossLaunches&) = delete;
  LossLaunches& operator=(const LossLaunches&) = delete;
  ~LossLaunches();  // waits for what was launched

  // Feeds the batch with weights mask x `weight` and runs; at most `most` times.
  void launch(const HostBatch& batch, double weight);
  // Of all launches, waited for.
  [[nodiscard]] LossSums sums();

 private:
  Executable& executable_;
  std::uint64_t seed_;
  std::int64_t step_;
  ModelFigures figures_;               // of the program
  std::vector<LossReading> readings_;  // which the device fills where they lie
};

// One launch and its sums.
[[nodiscard]] LossSums run_loss(Executable& executable, const HostBatch& batch, double weight);

}  // namespace hone
