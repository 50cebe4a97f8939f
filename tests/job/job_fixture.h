// Fixtures of tests that run the program in several processes on the miniature (support/miniature.h), and compare what
// runs leave in their output folders. Names of outputs and models are folders of the fixture's own.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "job/rank_losses.h"
#include "support/environment.h"
#include "support/paths.h"

namespace hone::test {

using Flags = std::vector<std::string>;
using Words = std::vector<std::string>;

// The scratch memory of a GEMM on the CPU depends on its threads, which the launcher divides over the processes.
inline const Variables kOneThread{{"OMP_NUM_THREADS", "1"}};

// Metrics of pre-training with an evaluation, and of fine-tuning.
inline const Flags kTrained{"loss", "eval_loss", "grad_norm", "entropy", "mean_token_accuracy", "num_tokens", "epoch"};
inline const Flags kTuned{"loss", "grad_norm", "num_tokens"};

[[nodiscard]] Flags joined(Flags a, const Flags& b);

class ServerProgram;
// Returns flags of a run whose rollouts come from these servers.
[[nodiscard]] Flags served_by(const std::vector<const ServerProgram*>& servers);

// Returns the lines of a text that begin so.
[[nodiscard]] std::size_t lines_with(std::string_view start, const std::string& text);

// Returns the words of each line of a plan's memory that begins with `name`: "total", "1.5", "MiB", "1,572,864",
// "bytes".
[[nodiscard]] std::vector<Words> planned_lines(const std::string& plan, std::string_view name);
// Returns the bytes that such a line ends with.
[[nodiscard]] double planned_bytes(const Words& line);

class JobFixture : public ::testing::Test {
 protected:
  JobFixture();

  [[nodiscard]] std::filesystem::path path(const std::string& relative) const { return folder_.path() / relative; }

  // Flags of micro-batches of 2 sequences, of which each rank has `micro_batches` a step.
  [[nodiscard]] static Flags batches(int micro_batches, int processes);
  // Commands, to which `more` is added: pre-training over evaluations and the end of an epoch, with a checkpoint every
  // 4 steps; fine-tuning; GRPO on 4 completions a prompt.
  [[nodiscard]] Flags pretraining(const std::string& output, int max_steps, int eval_steps, const Flags& more) const;
  [[nodiscard]] Flags fine_tuning(const std::string& model, const std::string& output, const Flags& more) const;
  [[nodiscard]] Flags reinforcement(const std::string& model, const std::string& output, const Flags& more) const;

  // Runs a command, which must succeed.
  static void finish(const Flags& command);
  // Runs a command, which must exit with 1, and returns its output.
  [[nodiscard]] static std::string refusal(const Flags& command);
  // Returns the output of `hone plan` for a command.
  [[nodiscard]] static std::string plan_of(const Flags& command);
  // Plans a command and runs it, which allocates what it plans to the byte or stops; its first line must say the
  // planned size. Returns the planned bytes of weights.
  [[nodiscard]] static double finish_as_planned(const Flags& command);
  // Starts a job and returns when its metrics have `lines` lines, or it has ended.
  [[nodiscard]] pid_t start_until(const Flags& command, const std::filesystem::path& log, const std::string& output,
                                  std::size_t lines) const;
  // Kills one of a job's ranks: the job ends with one line, which names it, and nothing of it is left.
  static void kill_rank(pid_t job, std::size_t processes, int victim, const std::filesystem::path& log);
  // Kills a rank of a job in the folder "killed" after some lines of metrics. The same command continues it and has the
  // weights of the folder "whole".
  void expect_continues_killed(const Flags& command, std::size_t processes, int victim, std::size_t lines) const;
  // Copies checkpoint-STEP to the folder of another run, which continues from it.
  void copy_checkpoint(const std::string& from, const std::string& to, int step) const;

  // Returns the values that metrics.jsonl has of a metric.
  [[nodiscard]] std::vector<double> series(const std::string& output, const std::string& metric) const;
  // Returns the bytes of model.safetensors.
  [[nodiscard]] std::string weights(const std::string& output) const;
  // Returns the values of the weights by their names in the model, without those of the biases of keys: such a bias
  // adds the same to all scores of a query, so that its gradient is rounding alone, which AdamW scales up.
  [[nodiscard]] NamedValues weight_values(const std::string& output) const;

  // Expects metrics that differ by at most 1e-5.
  void expect_near(const std::string& output, const std::string& one, const Flags& metrics = kTrained) const;
  // Expects weights whose relative difference (support/models.h) is below the tolerance. AdamW divides a gradient by
  // its size and so scales up the rounding of small ones.
  void expect_near_weights(const std::string& output, const std::string& one, double tolerance = 1e-4) const;
  // Expects the bits of the weights and of the losses.
  void expect_same_bits(const std::string& output, const std::string& other) const;

 private:
  TemporaryDirectory folder_;
};

// The division of a model's work over groups of processes, and the length of runs.
struct Division {
  std::string size_flag;           // gives the processes of a group
  bool divides_sequences = false;  // they compute different sequences, not parts of the same
  int micro_batches = 4;           // a step, of all processes together
  int max_steps = 8;
  int eval_steps = 4;
  Flags pretraining = {};  // further flags
};

// Runs with a new model of each of some configurations. data: ranks with different sequences; size: of a group.
class DividedJob : public JobFixture {
 protected:
  DividedJob(Division division, const Configs& configs);

  [[nodiscard]] Flags layout(int data, int size) const;
  [[nodiscard]] Flags arguments(const std::string& config, const std::string& output, int data, int size,
                                const Flags& more = {}) const;
  void run(const std::string& config, const std::string& output, int data, int size, const Flags& more = {}) const;
  // Fine-tunes a run's model for 6 steps.
  void tune(const std::string& model, const std::string& output, int data, int size, const Flags& more = {}) const;
  // Copies a checkpoint of `from` and continues it.
  void resume(const std::string& config, const std::string& from, int step, const std::string& to, int data, int size,
              const Flags& more = {}) const;

  // Runs NAME whole, and NAME parts from a checkpoint of it: the weights must have the same bits.
  void expect_resumes(const std::string& config, const std::string& name, int data, int size, const Flags& more) const;
  // Expects that the losses of a run that a checkpoint was resumed in are the last of the whole run `one`, up to 1e-5.
  void expect_near_end(const std::string& output, const std::string& one, int step) const;

 private:
  Division division_;
};

}  // namespace hone::test
