// Additional losses and statistics of a model (model/forward_figures.h): adds them to a program as outputs, and reads
// and averages the outputs over micro-batches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/forward_figures.h"
#include "program/executable.h"
#include "tracker/metric_row.h"
#include "train/job.h"

namespace hone {

// Returns loss [1] plus the additional losses, weighted by weights [tokens]. Each additional loss also becomes a
// separate output, without its coefficient.
[[nodiscard]] Tensor with_model_losses(Tensor loss, std::span<const AddedLoss> added, Tensor weights);
// Makes each statistic an output. Throws Error if its type does not match its kind.
void output_statistics(Program& program, std::span<const ModelStatistic> statistics);

// Accumulates these outputs over several runs of one program.
class ModelFigures {
 public:
  ModelFigures() = default;
  explicit ModelFigures(const Program& program);
  // Returns the figures of the last stage of a pipeline, whose programs have all of them, without any runs; those of
  // the program if the job has no pipeline. All ranks of the job call it.
  [[nodiscard]] static ModelFigures of_last_stage(const Program& program, const Job& job);

  // Returns true if the program adds a loss of the model to its own.
  [[nodiscard]] bool has_losses() const;
  // Starts copying the outputs of the last launch and returns the values, one output after the other. They are valid
  // after the device has been synchronized.
  [[nodiscard]] std::vector<float> read_later(const Executable& executable) const;
  // Adds a run of `tokens` tokens; values are those of read_later.
  void add(std::span<const float> values, std::int64_t tokens);
  // Synchronizes the device and adds the last run.
  void read(const Executable& executable, std::int64_t tokens);
  // Adds the runs of all other ranks of a job.
  void add_ranks(const Job& job);
  // Appends each loss, divided by `divisor`, and each statistic under its name.
  void append_to(MetricValues& values, double divisor) const;

 private:
  // Adds a figure of this output if it is one.
  void declare(const std::string& output, std::size_t entries);
  void append_loads_to(MetricValues& values) const;

  struct Figure {
    std::string output;
    std::string_view kind;       // prefix of the output's name, which gives the reduction
    std::string name;            // name of the metric
    std::vector<double> values;  // [entries] reduced over the runs so far
  };

  std::vector<Figure> figures_;
  double tokens_ = 0;  // tokens of the runs so far
  std::int64_t runs_ = 0;
};

}  // namespace hone
