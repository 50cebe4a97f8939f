#include "model/state_tensors.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "model/weight_layout.h"
#include "ops/adamw_8bit/adamw_8bit.h"

namespace hone {
namespace {

std::vector<std::int64_t> sizes_of(const Type& type) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(type.shape.size());
  for (const Dim& dim : type.shape) sizes.push_back(dim.size);
  return sizes;
}

std::int64_t product(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// A range of rows of a block: a part, or rows between parts.
struct Cut {
  const WeightPart* part = nullptr;  // null: rows that belong to no part
  std::int64_t row = 0;
  std::int64_t rows = 0;
};

std::vector<Cut> cuts_of(const WeightSpec& spec) {
  std::vector<Cut> cuts;
  std::int64_t row = 0;
  for (const WeightPart& part : spec.parts) {
    if (part.row > row) cuts.push_back({nullptr, row, part.row - row});
    cuts.push_back({&part, part.row, part.rows});
    row = part.row + part.rows;
  }
  if (row < spec.shape[0]) cuts.push_back({nullptr, row, spec.shape[0] - row});
  return cuts;
}

}  // namespace

StateLayout::StateLayout(const std::vector<WeightSpec>& specs, StateNames names) : names_(names) {
  for (const WeightSpec& spec : specs) specs_.emplace(spec.name, &spec);
}

std::vector<StateTensor> StateLayout::of(const NamedType& tensor) const {
  const std::vector<std::int64_t> sizes = sizes_of(tensor.type);
  std::vector<StateTensor> whole{{.name = tensor.name, .shape = sizes, .place = {}}};
  if (names_ == StateNames::kBlocks) return whole;
  // Find the weight: the tensor is either "BLOCK" or "BLOCK.STATE".
  auto found = specs_.find(tensor.name);
  std::string state;
  if (const std::size_t dot = tensor.name.rfind('.'); found == specs_.end() && dot != std::string::npos) {
    found = specs_.find(std::string_view(tensor.name).substr(0, dot));
    state = tensor.name.substr(dot);
  }
  if (found == specs_.end()) return whole;
  const WeightSpec& spec = *found->second;
  const std::int64_t elements = product(spec.shape);
  const bool is_scales = sizes != spec.shape;
  const bool known = !is_scales || sizes == std::vector{scales_of(elements)};
  HONE_ASSERT(known, tensor.name, " ", shape_text(sizes), " is shaped neither as ", shape_text(spec.shape),
              " nor as its scales");
  std::vector<StateTensor> stretches;
  for (const auto& [part, row, rows] : cuts_of(spec)) {
    StateTensor stretch{.name = part != nullptr ? part->name + state : tensor.name, .shape = sizes, .place = {}};
    std::int64_t end = (row + rows) * row_elements(spec);
    stretch.first = row * row_elements(spec);
    if (is_scales) {
      // A scale that covers elements of two parts cannot be split between them.
      if (end % kStateBlock != 0 && end != elements) return whole;
      stretch.first /= kStateBlock;
      end = scales_of(end);
    }
    stretch.shape[0] = is_scales ? end - stretch.first : rows;
    if (part == nullptr) {
      stretch.place = {.offset = std::vector<std::int64_t>(sizes.size(), 0), .whole = sizes};
      stretch.place.offset[0] = is_scales ? stretch.first : row;
    }
    stretches.push_back(std::move(stretch));
  }
  return stretches;
}

std::vector<TensorSource> state_sources(const StateLayout& layout, const TensorStore& store,
                                        const std::string& prefix) {
  std::vector<TensorSource> sources;
  const auto staging = std::make_shared<std::vector<std::byte>>();
  for (const NamedType& tensor : store.tensors()) {
    const std::size_t size = size_of(tensor.type.dtype);
    for (StateTensor& stretch : layout.of(tensor)) {
      const std::size_t first = static_cast<std::size_t>(stretch.first) * size;
      sources.push_back({.name = prefix + stretch.name,
                         .dtype = tensor.type.dtype,
                         .shape = std::move(stretch.shape),
                         .piece =
                             [&store, staging, first, name = tensor.name](std::uint64_t begin, std::size_t most) {
                               staging->resize(most);
                               store.download(name, first + begin, *staging);
                               return std::span<const std::byte>(*staging);
                             },
                         .place = std::move(stretch.place)});
    }
  }
  return sources;
}

void load_states(const StateLayout& layout, const PiecedTensors& file, const std::string& prefix, TensorStore& store,
                 std::size_t piece_bytes) {
  std::vector<std::byte> staging;
  for (const NamedType& tensor : store.tensors()) {
    const DType dtype = tensor.type.dtype;
    const std::size_t size = size_of(dtype);
    const std::int64_t most = elements_in_piece(piece_bytes, dtype);
    for (const StateTensor& stretch : layout.of(tensor)) {
      const bool is_piece = !stretch.place.whole.empty();
      const std::vector<std::int64_t>& whole = is_piece ? stretch.place.whole : stretch.shape;
      const std::int64_t elements = product(stretch.shape);
      // A range consists of whole rows, so its first element follows from its first row.
      const std::int64_t first = is_piece ? stretch.place.offset[0] * product(std::span(whole).subspan(1)) : 0;
      const PiecedTensor stored = file.at(prefix + stretch.name, whole, first, elements);
      for (std::int64_t done = 0; done < elements;) {
        const std::int64_t count = std::min(most, elements - done);
        staging.resize(static_cast<std::size_t>(count) * size);
        stored.read(first + done, dtype, staging);
        store.upload(tensor.name, static_cast<std::size_t>(stretch.first + done) * size, staging);
        done += count;
      }
    }
  }
}

}  // namespace hone
