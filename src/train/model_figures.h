// The losses and figures that a model adds (model/forward_figures.h): their outputs in a program, and what is read of
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/forward_figures.h"
#include "program/executable.h"
#include "tracker/metric_row.h"

namespace hone {

// loss [1] with the added losses, by weights [tokens]. Each is an output of its own, without its coefficient.
[[nodiscard]] Tensor with_model_losses(Tensor loss, std::span<const AddedLoss> added, Tensor weights);
// Makes outputs of them. Throws Error where one is not of the type that its kind asks for.
void output_statistics(Program& program, std::span<const ModelStatistic> statistics);

// Those outputs of several runs of one program.
class ModelFigures {
 public:
  ModelFigures() = default;
  explicit ModelFigures(const Program& program);

  // The values of the run that was started last, one output after the other; there once the device has been
  // synchronized.
  [[nodiscard]] std::vector<float> read_later(const Executable& executable) const;
  // Adds a run of so many tokens by what read_later gave.
  void add(std::span<const float> values, std::int64_t tokens);
  // Adds the run that has ended.
  void read(const Executable& executable, std::int64_t tokens);
  // Each loss, divided by `divisor`, and each figure, under its name.
  void append_to(MetricValues& values, double divisor) const;

 private:
  struct Figure {
    std::string output;
    std::string_view kind;       // as the output's name says it
    std::string name;            // of the metric
    std::vector<double> values;  // of the runs so far
  };

  std::vector<Figure> figures_;
  double tokens_ = 0;  // of the runs so far
  std::int64_t runs_ = 0;
};

}  // namespace hone
