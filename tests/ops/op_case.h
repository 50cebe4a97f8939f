// One declaration of an operation's case gives its checks: every dtype against a float64 reference, gradients against
// finite differences of that reference, and both with counts below capacity and garbage in the tail.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "program/kernel.h"
#include "program/program.h"

namespace hone::test {

struct CaseInput {
  std::string name;
  Type type;                   // floating: f32 stands for the dtype under test
  bool weight = false;         // a trainable weight: its gradient accumulates
  std::vector<double> values;  // empty: normal numbers times `scale`
  double scale = 1.0;
  bool differentiable = true;  // floating inputs only
  bool keeps_dtype = false;    // f32 in every run but that of f64 (weights of a loss, statistics)
};

using Values = std::vector<double>;

// What a run sets; a count that is not among them is at its capacity.
using Counts = std::map<Count, std::int64_t>;
[[nodiscard]] std::int64_t rows_in_use(const Counts& counts, Count count, std::int64_t capacity);

struct OpCase {
  std::string name;
  std::vector<CaseInput> inputs;
  Counts below{};  // of the second run
  // Appends the operation; the results are the outputs to compare.
  std::function<std::vector<Tensor>(Program&, std::span<const Tensor>)> build;
  // The same outputs, in float64, from inputs whose first `counts` rows are valid. Only valid rows are compared.
  std::function<std::vector<Values>(std::span<const Values>, const Counts&)> reference;
  std::vector<bool> seeded;  // which outputs get a gradient; empty: all floating ones. All false: no gradient check
  double tolerance = 1.0;    // times the dtype's
  bool fused = false;        // fuse() after the gradients
};

// Runs all checks of a case; failures are GoogleTest failures that name case, dtype, counts, tensor and position.
void check(const OpCase& op_case);

}  // namespace hone::test
