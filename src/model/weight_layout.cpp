#include "model/weight_layout.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"

namespace hone {
namespace {

// Name of the checkpoint tensor that holds a part.
const std::string& tensor_of(const WeightPart& part) {
  return part.source.tensor.empty() ? part.name : part.source.tensor;
}

bool is_slice(const WeightPart& part) { return !part.source.tensor.empty(); }

// Checks that all slices of a tensor agree in everything that must be the same.
void check_agreement(const CheckpointTensor& tensor) {
  const PartSlice& first = tensor.slices.front();
  HONE_ASSERT(tensor.slices.size() == 1 || is_slice(*first.part), "two parts are named ", tensor.name);
  for (const auto& [spec, part, element] : tensor.slices) {
    const bool agrees = is_slice(*part) == is_slice(*first.part) && part->transposed == first.part->transposed &&
                        (part->source.matrix < 0) == (first.part->source.matrix < 0) &&
                        std::equal(spec->shape.begin() + 1, spec->shape.end(), first.spec->shape.begin() + 1,
                                   first.spec->shape.end()) &&
                        spec->dtype == first.spec->dtype;
    HONE_ASSERT(agrees, "the slices ", first.part->name, " and ", part->name, " of ", tensor.name,
                " disagree in columns, type, orientation or in whether it is one matrix");
  }
}

// Computes the sizes of a tensor from its slices.
void measure(CheckpointTensor& tensor) {
  const WeightSpec& spec = *tensor.slices.front().spec;
  const WeightPart& part = *tensor.slices.front().part;
  tensor.columns = row_elements(spec);
  tensor.transposed = part.transposed;
  for (const PartSlice& slice : tensor.slices) {
    const PartSource& source = slice.part->source;
    tensor.matrices = std::max(tensor.matrices, source.matrix + 1);
    tensor.rows = std::max(tensor.rows, source.row + slice.part->rows);
  }
  tensor.shape = spec.shape;
  tensor.shape[0] = tensor.rows;
  if (tensor.transposed) std::swap(tensor.shape[0], tensor.shape[1]);
  if (part.source.matrix >= 0) tensor.shape.insert(tensor.shape.begin(), tensor.matrices);
}

// Sorts the slices and checks that they fill the tensor, each element exactly once.
void place(CheckpointTensor& tensor) {
  for (PartSlice& slice : tensor.slices) {
    const PartSource& source = slice.part->source;
    HONE_ASSERT(source.row >= 0, "the slice ", slice.part->name, " of ", tensor.name, " begins at row ", source.row);
    slice.first = (std::max<std::int64_t>(source.matrix, 0) * tensor.rows + source.row) * tensor.columns;
  }
  std::ranges::stable_sort(tensor.slices, {}, &PartSlice::first);
  std::int64_t filled = 0;
  for (const PartSlice& slice : tensor.slices) {
    HONE_ASSERT(slice.first == filled, "the slices of ", tensor.name,
                slice.first < filled ? " overlap at " : " leave a gap before ", slice.part->name);
    filled += slice.elements();
  }
  HONE_ASSERT(filled == tensor.matrices * tensor.matrix_elements(), "the slices of ", tensor.name,
              " leave a gap behind ", tensor.slices.back().part->name);
}

void check_axes(const WeightSpec& spec, const WeightPart& part) {
  HONE_ASSERT(!part.axes.empty() || !spec.kind.traits().has_axes, "the family does not say along which axis ",
              part.name, " may be cut");
  const std::vector<std::int64_t> shape = part_shape(spec, part);
  for (const PartAxis& axis : part.axes) {
    if (axis.axis == ShardAxis::kWhole) continue;
    const bool inside = axis.dimension >= 0 && axis.dimension < static_cast<std::int64_t>(shape.size());
    HONE_ASSERT(inside && axis.unit > 0 && axis.sections > 0, "axis of dimension ", axis.dimension, ", unit ",
                axis.unit, ", sections ", axis.sections, " of ", part.name);
    const std::int64_t size = shape[static_cast<std::size_t>(axis.dimension)];
    HONE_ASSERT(size % (axis.unit * axis.sections) == 0, size, " of ", part.name, " are not ", axis.sections,
                " sections in units of ", axis.unit);
  }
}

void check_rows(const WeightSpec& spec) {
  std::int64_t row = 0;
  std::int64_t filled = 0;
  for (const WeightPart& part : spec.parts) {
    HONE_ASSERT(part.rows > 0 && part.row >= row && part.row + part.rows <= spec.shape[0], part.name, " has rows ",
                part.row, " to ", part.row + part.rows, " of the ", spec.shape[0], " of ", spec.name);
    HONE_ASSERT(!part.transposed || spec.shape.size() == 2, part.name, " is transposed and no matrix");
    HONE_ASSERT(!is_slice(part) || !spec.is_by_token(), part.name, " is a slice, and its rows are tokens");
    row = part.row + part.rows;
    filled += part.rows;
  }
  HONE_ASSERT(!spec.in_folder || filled == spec.shape[0], "the parts of ", spec.name, " fill ", filled, " of its ",
              spec.shape[0], " rows");
}

}  // namespace

std::int64_t row_elements(const WeightSpec& spec) {
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < spec.shape.size(); ++i) elements *= spec.shape[i];
  return elements;
}

std::vector<std::int64_t> part_shape(const WeightSpec& spec, const WeightPart& part) {
  std::vector<std::int64_t> shape = spec.shape;
  shape[0] = part.rows;
  return shape;
}

std::vector<PartAxis> axes_along(const WeightPart& part, std::int64_t dimension) {
  std::vector<PartAxis> along;
  for (const PartAxis& axis : part.axes) {
    if (axis.axis != ShardAxis::kWhole && axis.dimension == dimension) along.push_back(axis);
  }
  if (along.empty()) along.push_back({});
  return along;
}

std::vector<CheckpointTensor> checkpoint_tensors(const std::vector<WeightSpec>& specs, bool in_folder) {
  std::vector<CheckpointTensor> tensors;
  std::map<std::string_view, std::size_t> index;  // keys refer to the names in the parts
  for (const WeightSpec& spec : specs) {
    if (spec.in_folder != in_folder) continue;
    for (const WeightPart& part : spec.parts) {
      const auto [found, added] = index.emplace(tensor_of(part), tensors.size());
      if (added) tensors.push_back({.name = tensor_of(part), .shape = {}, .slices = {}});
      tensors[found->second].slices.push_back({&spec, &part});
    }
  }
  for (CheckpointTensor& tensor : tensors) {
    check_agreement(tensor);
    measure(tensor);
    place(tensor);
  }
  return tensors;
}

void check_specs(const std::vector<WeightSpec>& specs) {
  std::set<std::string_view> names;
  for (const WeightSpec& spec : specs) {
    HONE_ASSERT(spec.kind.is_set(), "the family does not say what kind of weight ", spec.name, " is");
    check_rows(spec);
    for (const WeightPart& part : spec.parts) {
      HONE_ASSERT(names.insert(part.name).second, "two parts are named ", part.name);
      check_axes(spec, part);
    }
  }
  (void)checkpoint_tensors(specs, true);
  (void)checkpoint_tensors(specs, false);
}

}  // namespace hone
