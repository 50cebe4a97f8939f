// Checks of an operation from one declaration: outputs in every dtype against a float64 reference, gradients against
// finite differences of that reference, and both again with counts below capacity and garbage in the tail.
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

// An input of the operation.
struct CaseInput {
  std::string name;
  Type type;                   // floating: f32 stands for the dtype under test
  bool weight = false;         // a trainable weight: its gradient accumulates
  std::vector<double> values;  // empty: normally distributed numbers times `scale`
  double scale = 1.0;
  bool differentiable = true;  // floating inputs only
  bool keeps_dtype = false;    // f32 in every run except that of f64 (weights of a loss, statistics)
};

using Values = std::vector<double>;

// The counts that a run sets; others are at capacity.
using Counts = std::map<Count, std::int64_t>;
[[nodiscard]] std::int64_t rows_in_use(const Counts& counts, Count count, std::int64_t capacity);

struct OpCase {
  std::string name;
  std::vector<CaseInput> inputs;
  Counts below{};  // counts of the second run
  // Appends the operation; the results are the outputs to compare.
  std::function<std::vector<Tensor>(Program&, std::span<const Tensor>)> build;
  // The same outputs, in float64, from inputs whose first `counts` rows are valid. Only valid rows are compared.
  std::function<std::vector<Values>(std::span<const Values>, const Counts&)> reference;
  std::vector<bool> seeded;  // outputs that get a gradient; empty: all floating ones; all false: no gradient check
  double tolerance = 1.0;    // factor of the dtype's tolerance
  bool fused = false;        // run fuse() after the gradients
};

// Runs all checks of a case; failures are GoogleTest failures that name case, dtype, counts, tensor and position.
void check(const OpCase& op_case);

}  // namespace hone::test
