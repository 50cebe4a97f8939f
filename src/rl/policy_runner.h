// Runs the loss programs of GRPO on the completions of a step, laid into micro-batches.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "rl/grpo_metrics.h"
#include "rl/grpo_run.h"
#include "rl/policy_batch.h"
#include "rl/policy_program.h"
#include "train/loss_program.h"
#include "train/model_figures.h"

namespace hone {

// Loss and figures of a loss program, over its runs so far.
struct PolicyTotals {
  PolicyTotals(const PolicyLossOptions& options, const Program& program) : metrics(options), figures(program) {}
  // Adds the totals of the other ranks of a job.
  void add_ranks(const Job& job);
  double loss = 0;   // sum of the micro-batches' shares
  double flops = 0;  // of the forward and backward passes that ran
  Padding padding;
  PolicyMetrics metrics;
  ModelFigures figures;
};

class PolicyRunner {
 public:
  // The workspace must have the programs of trace_run(run) and be allocated. Both must outlive the runner.
  PolicyRunner(const GrpoRun& run, Workspace& workspace);

  // Adds the gradient of the step's loss, micro-batch after micro-batch. The loss and metrics are those of its batches,
  // however it is laid into micro-batches. Completions without a gradient (split_by_gradient) get a forward pass only.
  // fresh: for each batch, true if the weights are still those that sampled it, so that the metrics may compare
  // log-probabilities.
  [[nodiscard]] PolicyTotals train(const PolicyBatch& step, const std::vector<bool>& fresh) const;
  // Runs the program of each capacity on a sample without weight: the first run of a program loads kernels and waits
  // for each of its nodes, and the steps that follow do not. Losses that balance routers add gradients, to be
  // discarded.
  void prepare() const;
  // Returns the same loss and metrics without gradients.
  [[nodiscard]] PolicyTotals evaluate(const PolicyBatch& step) const;
  // Runs a program of trace_target_logps on the step and returns one of its outputs, [tokens].
  [[nodiscard]] std::vector<float> target_values(const char* program, const PolicyBatch& step,
                                                 std::string_view output) const;

 private:
  // Outputs of a loss program for each token of a batch.
  struct TokenValues {
    TokenValues(std::size_t tokens, bool with_kl) : logps(tokens), entropies(tokens), kls(with_kl ? tokens : 0) {}
    std::vector<float> logps;
    std::vector<float> entropies;
    std::vector<float> kls;  // empty without a reference model
  };

  // Lays the samples of a batch into micro-batches, in order. Returns the end of each, in samples.
  [[nodiscard]] std::vector<std::size_t> micro_batch_ends(const PolicyBatch& batch) const;
  // Runs a loss program on the samples `chosen` of the step and adds their share to totals. values are those of the
  // step.
  void run(const char* program, const PolicyBatch& step, std::span<const std::size_t> chosen, PolicyTotals& totals,
           TokenValues& values) const;
  // Runs one micro-batch, whose first token is token `first` of values.
  void run_micro_batch(Executable& program, const PolicyBatch& batch, std::size_t first, PolicyTotals& totals,
                       TokenValues& values) const;
  // Adds the metrics of each batch of the step. fresh: as in train(); empty: nothing is compared.
  void add_metrics(const PolicyBatch& step, const std::vector<bool>& fresh, const TokenValues& values,
                   PolicyTotals& totals) const;

  const GrpoRun& run_;
  Workspace& workspace_;
  BatchLimits limits_;  // of a micro-batch
  PolicyLossOptions loss_;
};

}  // namespace hone
