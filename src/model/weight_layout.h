// Where the parts of blocks lie in a checkpoint: the one reading of WeightSpec that models, adapters and training
// states are saved and loaded by.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/weight_spec.h"

namespace hone {

// Elements of one row of a block.
[[nodiscard]] std::int64_t row_elements(const WeightSpec& spec);
// [rows, ...], as the block holds the part.
[[nodiscard]] std::vector<std::int64_t> part_shape(const WeightSpec& spec, const WeightPart& part);

// A part in the tensor of the checkpoint that holds it.
struct PartSlice {
  const WeightSpec* spec = nullptr;
  const WeightPart* part = nullptr;
  // Elements before it, were the tensor's matrices held as blocks hold them, [matrices, rows, columns].
  std::int64_t first = 0;

  [[nodiscard]] std::int64_t elements() const { return part->rows * row_elements(*spec); }
};

// A tensor of a model's folder, or an adapter's: one part, or several put together.
struct CheckpointTensor {
  std::string name;
  std::vector<std::int64_t>
      shape;  // as stored: of a transposed one [columns, rows], of merged matrices [matrices, ...]
  std::int64_t matrices = 1;
  std::int64_t rows = 0;  // of a matrix, as blocks hold it
  std::int64_t columns = 0;
  bool transposed = false;
  std::vector<PartSlice> slices;  // by `first`; they fill the tensor

  [[nodiscard]] std::int64_t matrix_elements() const { return rows * columns; }
};

// Those of a model's folder (`in_folder`), or an adapter's, by their first parts' order; they point into `specs`.
// Throws Defect where the slices of one tensor overlap, leave gaps, or disagree in columns, type or orientation.
[[nodiscard]] std::vector<CheckpointTensor> checkpoint_tensors(const std::vector<WeightSpec>& specs, bool in_folder);

}  // namespace hone
