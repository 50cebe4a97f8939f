// Traces and runs the programs that compute the next-token loss of a micro-batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "compile/compiler.h"
#include "data/host_batch.h"
#include "model/model.h"
#include "passes/sum_gradients.h"
#include "train/model_figures.h"
#include "workspace/sized_programs.h"

namespace hone {

// Options of tracing and compiling a loss.
struct LossProgramOptions {
  Capacity capacity;
  CompileOptions compile = {};
  int context_size = 1;  // ranks over which the tokens of `capacity` are divided (passes/context_parallel.h)
  bool dynamic = false;  // multiplies the loss of each token by its probability, held constant (loss_type: dft)
};

// A loss while it is traced: the program and, for each token, the log-probability of its target.
struct LossTrace {
  Program program;
  Tensor logp;     // f32 [tokens]; 0 if there is no target
  Tensor entropy;  // f32 [tokens]
  Tensor hit;      // f32 [tokens]; 1 if the target is the most probable token, otherwise 0
  std::vector<AddedLoss> losses;
  std::vector<ModelStatistic> statistics;
};

struct LogProbabilityOptions {
  double temperature = 1.0;
  bool trainable = false;  // binds the weights as trainable
  bool learns = false;     // computes the additional losses and statistics of the model
  bool dropout = false;    // applies the dropouts of the model's configuration
};
// Traces the model and the log-probabilities of the targets into `trace`. Inputs: "targets", i32 [tokens], and those of
// DocumentBatch.
void trace_log_probabilities(LossTrace& trace, const Model& model, const Capacity& capacity,
                             const LogProbabilityOptions& options);
// Adds kSummingProgram in all capacities of kTrainingProgram, which must be in the workspace.
void add_summing_programs(Workspace& workspace, const ProgramUse& use, const ExpertGradients& experts);
// Adds kQuantizationProgram if kTrainingProgram, which must be in the workspace with the same use, holds copies of its
// weights in FP8 (Fp8Copies::kHeld).
void add_quantization(Workspace& workspace, const ProgramUse& use);
// Traces loss = sum over tokens of loss_weights[t] x -log p(target[t]), and the accumulation of the gradients of all
// weights. With `dynamic` each term is multiplied by p(target[t]), which gets no gradient (Wu et al., "On the
// generalization of SFT", 2025). Dropouts of the model are applied.
// Inputs in addition to those of trace_log_probabilities: "loss_weights" and "counted", f32 [tokens].
// Outputs, each [1]: "loss", including the additional losses of the model; "entropy" and "hits" (number of targets that
// were the most probable token), sums over the tokens that "counted" marks with 1. Further outputs: the losses and
// statistics of the model (train/model_figures.h).
[[nodiscard]] Program trace_training(const Model& model, const LossProgramOptions& options);
// The forward pass of the same program, for a stage of a pipeline.
[[nodiscard]] Program trace_training_forward(const Model& model, const LossProgramOptions& options);
// The same without gradients and dropout, for evaluation.
[[nodiscard]] Program trace_evaluation(const Model& model, const LossProgramOptions& options);

// Cost of running a program on a batch. Attention is computed within documents only.
struct BatchWork {
  double per_token = 0;  // FLOPs per token
  double per_pair = 0;   // FLOPs per pair of a token and itself or an earlier token of its document
  [[nodiscard]] double flops(const HostBatch& batch) const;
};
// Derives it from the cost of a program with a capacity of `tokens`, divided over context_size ranks.
[[nodiscard]] BatchWork work_of(const Program& program, std::int64_t tokens, int context_size = 1);

// Sets the inputs tokens, positions and cu_seqlens of an executable, if it has them, and its token count; those of
// ContextInputs too if its tokens are divided. Throws Defect if the batch has more documents than the executable has
// room for.
void feed(Executable& executable, const HostBatch& batch);

// Names of these programs in a workspace.
inline constexpr const char* kTrainingProgram = "training";
inline constexpr const char* kSummingProgram = "summing training";  // the same with sum_gradients(), in a job
inline constexpr const char* kEvaluationProgram = "evaluation";
// Quantizes the weights before the micro-batches of a step, if these read such copies (Fp8Copies::kHeld).
inline constexpr const char* kQuantizationProgram = "quantization of weights";

// Counts the rows of the programs that ran, which a GPU multiplies whether they hold a token or not.
struct Padding {
  double rows = 0;
  double tokens = 0;
  // Returns the share of rows without a token; 0 if nothing ran.
  [[nodiscard]] double share() const { return rows > 0 ? 1.0 - tokens / rows : 0.0; }
};
// Name of the metric that tells it.
inline constexpr const char* kPaddingMetric = "padding";

// Results of one launch.
struct LossReading {
  float loss = 0;  // weighted sum
  float entropy = 0;
  float hits = 0;
  std::int64_t target_tokens = 0;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;       // capacity of the program that ran
  std::vector<float> figures;  // values of ModelFigures::read_later
};

// Sums of the results of several launches.
struct LossSums {
  double loss = 0;  // sum of the weighted losses
  double entropy = 0;
  double hits = 0;
  double target_tokens = 0;
  Padding padding;
  ModelFigures figures;  // losses and statistics of the model
  void add(const LossReading& reading);
};

// Launches the micro-batches of a step without waiting for each of them, each in the smallest program that holds it.
// Dropout depends on seed, step and the index of the launch; the first launch has the index `first`.
inline constexpr std::int64_t kMostLaunchesOfRank = std::int64_t{1} << 16;  // between the indices of two ranks of a job
class LossLaunches {
 public:
  LossLaunches(SizedExecutables programs, std::size_t most, std::uint64_t seed = 0, std::int64_t step = 0,
               std::int64_t first = 0)
      : programs_(std::move(programs)),
        seed_(seed),
        step_(step),
        first_(first),
        figures_(programs_.largest().program()) {
    pending_downloads_.reserve(most);
  }
  LossLaunches(const LossLaunches&) = delete;
  LossLaunches& operator=(const LossLaunches&) = delete;
  ~LossLaunches();  // waits for all launches, which write into this object

  // Launches a batch with loss weights batch.loss_weights x `weight`, in a program that has room for `room` tokens at
  // least. May be called `most` times.
  void launch(const HostBatch& batch, double weight, std::int64_t room = 0);
  // Launches a batch in a given program, which need not have all inputs and outputs of one, as the launch of this
  // index. Only a program with a loss counts as a launch in `most` and in the sums.
  void launch_in(Executable& executable, const HostBatch& batch, double weight, std::int64_t index);
  // Sets other programs with the same outputs for the launches that follow.
  void continue_with(SizedExecutables programs) { programs_ = std::move(programs); }
  // Waits for all launches and adds them to `sums`, which may be those of earlier launches of the same programs.
  void add_to(LossSums& sums);
  // Waits for all launches and returns their sums.
  [[nodiscard]] LossSums sums();

 private:
  [[nodiscard]] static bool has_loss(const Program& program);

  SizedExecutables programs_;
  std::uint64_t seed_;
  std::int64_t step_;
  std::int64_t first_;
  ModelFigures figures_;                        // losses and statistics that the program outputs
  std::vector<LossReading> pending_downloads_;  // [launches], reserved in advance: the device writes into the elements
};

// Launches one batch and returns its sums.
[[nodiscard]] LossSums run_loss(Executable& executable, const HostBatch& batch, double weight);

}  // namespace hone
