// Maps the parts of weight blocks to the tensors of a checkpoint. Saving and loading of models, adapters and training
// states all use this mapping, so they interpret WeightSpec in the same way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/weight_spec.h"

namespace hone {

// Number of elements in a row of a block.
[[nodiscard]] std::int64_t row_elements(const WeightSpec& spec);
// Shape of a part in its block, [rows, ...].
[[nodiscard]] std::vector<std::int64_t> part_shape(const WeightSpec& spec, const WeightPart& part);

// The position of a part in its checkpoint tensor.
struct PartSlice {
  const WeightSpec* spec = nullptr;
  const WeightPart* part = nullptr;
  // Index of its first element, with the tensor viewed as [matrices, rows, columns] in the orientation of blocks.
  std::int64_t first = 0;

  [[nodiscard]] std::int64_t elements() const { return part->rows * row_elements(*spec); }
};

// A tensor of a model folder or an adapter file: one part, or several parts merged.
struct CheckpointTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // as stored: [columns, rows] if transposed, [matrices, ...] if merged
  std::int64_t matrices = 1;
  std::int64_t rows = 0;     // rows of a matrix in the orientation of blocks
  std::int64_t columns = 0;  // columns of a matrix in the orientation of blocks
  bool transposed = false;
  std::vector<PartSlice> slices;  // ordered by `first`; together they fill the tensor

  [[nodiscard]] std::int64_t matrix_elements() const { return rows * columns; }
};

// Tensors of the model folder (`in_folder`) or of the adapter file, in the order of their first parts. The result
// points into `specs`. Throws Defect if the slices of a tensor overlap, leave gaps, or differ in columns, type or
// orientation.
[[nodiscard]] std::vector<CheckpointTensor> checkpoint_tensors(const std::vector<WeightSpec>& specs, bool in_folder);

}  // namespace hone
