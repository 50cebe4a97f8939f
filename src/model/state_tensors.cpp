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

bool is_part_of_rank(const WeightSpec& spec) { return !spec.parts.empty() && spec.parts[0].box.has_value(); }

// Rows that belong to no part are left out of a rank's part of a weight.
std::vector<Cut> cuts_of(const WeightSpec& spec) {
  std::vector<Cut> cuts;
  std::int64_t row = 0;
  for (const WeightPart& part : spec.parts) {
    if (part.row > row) cuts.push_back({nullptr, row, part.row - row});
    cuts.push_back({&part, part.row, part.rows});
    row = part.row + part.rows;
  }
  if (row < spec.shape[0]) cuts.push_back({nullptr, row, spec.shape[0] - row});
  if (is_part_of_rank(spec)) std::erase_if(cuts, [](const Cut& cut) { return cut.part == nullptr; });
  return cuts;
}

// A range of indices along the first dimension of a block's tensor.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Returns "PART.8,0+24x32" for a rank's part of a block, [24, 32], that begins at row 8 of PART.
std::string name_of_share(const WeightSpec& spec) {
  const auto listed = [](std::span<const std::int64_t> numbers, char between) {
    std::string text;
    for (const std::int64_t number : numbers) text += (text.empty() ? "" : std::string(1, between)) + text_of(number);
    return text;
  };
  const WeightPart& first = spec.parts[0];
  return text_of(first.name, ".", listed(first.box->offset, ','), "+", listed(spec.shape, 'x'));
}

// Returns the place that begins at an index of the first dimension of a tensor of the shape `whole`.
TensorPlace place_at(std::int64_t index, std::vector<std::int64_t> whole) {
  TensorPlace place{.offset = std::vector<std::int64_t>(whole.size(), 0), .whole = std::move(whole)};
  place.offset[0] = index;
  return place;
}

// Returns the place of what a store holds of a part, or of rows that belong to none, in the checkpoint's tensor. whole:
// shape of the block's tensor.
TensorPlace place_of_rows(const WeightSpec& spec, const WeightPart* part, IndexRange of_part, IndexRange held,
                          std::vector<std::int64_t> whole) {
  if (part == nullptr) return place_at(held.begin, std::move(whole));
  if (part->box && part->box->whole != part_shape(spec, *part)) {
    TensorPlace place{.offset = part->box->offset, .whole = part->box->whole};
    place.offset[0] += held.begin - of_part.begin;
    return place;
  }
  if (held.end - held.begin == of_part.end - of_part.begin) return {};
  whole[0] = of_part.end - of_part.begin;
  return place_at(held.begin - of_part.begin, std::move(whole));
}

}  // namespace

bool has_whole_state_blocks(const WeightSpec& part) {
  const std::int64_t row = row_elements(part);
  return std::ranges::all_of(part.parts, [&](const WeightPart& piece) {
    return piece.rows * row % kStateBlock == 0 && (!piece.box || piece.box->whole == part_shape(part, piece));
  });
}

StateLayout::StateLayout(const std::vector<WeightSpec>& specs, StateNames names, std::map<std::string, HeldRows> held)
    : names_(names), held_(std::move(held)) {
  for (const WeightSpec& spec : specs) specs_.emplace(spec.name, &spec);
}

StateLayout::Specs::const_iterator StateLayout::block_of(const std::string& tensor, std::string& state) const {
  const std::size_t dot = tensor.rfind('.');
  const auto found = specs_.find(tensor);
  if (found != specs_.end() || dot == std::string::npos) return found;
  state = tensor.substr(dot);
  return specs_.find(std::string_view(tensor).substr(0, dot));
}

std::vector<StateTensor> StateLayout::of(const NamedType& tensor) const {
  const std::vector<std::int64_t> sizes = sizes_of(tensor.type);
  std::vector<StateTensor> whole{{.name = tensor.name, .shape = sizes, .place = {}}};
  std::string state;
  const auto found = block_of(tensor.name, state);
  if (found == specs_.end()) return whole;
  const WeightSpec& spec = *found->second;
  const std::int64_t row = row_elements(spec);
  const std::int64_t elements = product(spec.shape);
  const auto held = state.empty() ? held_.end() : held_.find(spec.name);
  const HeldRows rows = held != held_.end() ? held->second : HeldRows{0, spec.shape[0]};
  const bool is_piece = rows.count != spec.shape[0];
  std::vector<std::int64_t> held_shape = spec.shape;
  held_shape[0] = rows.count;
  const bool is_scales = sizes != held_shape;
  // Index in the whole tensor, along its first dimension, of what the store's tensor begins with.
  const std::int64_t start = is_scales ? rows.first * row / kStateBlock : rows.first;
  const bool known = !is_scales || sizes == std::vector{scales_of((rows.first + rows.count) * row) - start};
  HONE_ASSERT(known, tensor.name, " ", shape_text(sizes), " is shaped neither as ", shape_text(held_shape),
              " nor as its scales");
  std::vector<std::int64_t> whole_sizes = sizes;
  whole_sizes[0] = is_scales ? scales_of(elements) : spec.shape[0];
  if (is_piece) whole[0].place = place_at(start, whole_sizes);
  if (names_ == StateNames::kBlocks) return whole;
  if (is_scales && is_part_of_rank(spec) && !has_whole_state_blocks(spec)) {
    whole[0].name = name_of_share(spec) + state;
    return whole;
  }
  std::vector<StateTensor> stretches;
  for (const auto& [part, first_row, row_count] : cuts_of(spec)) {
    StateTensor stretch{.name = part != nullptr ? part->name + state : tensor.name,
                        .shape = sizes,
                        .place = {},
                        .is_part = part != nullptr};
    // Indices along the first dimension of the whole tensor: of the part, then of what the store holds of it.
    std::int64_t begin = first_row;
    std::int64_t end = first_row + row_count;
    if (is_scales) {
      // A scale that covers elements of two parts cannot be split between them.
      if (end * row % kStateBlock != 0 && end * row != elements) return whole;
      begin = begin * row / kStateBlock;
      end = scales_of(end * row);
    }
    const std::int64_t held_begin = std::max(begin, start);
    const std::int64_t held_end = std::min(end, start + sizes[0]);
    if (held_begin >= held_end) continue;
    stretch.first = (held_begin - start) * (is_scales ? 1 : row);
    stretch.shape[0] = held_end - held_begin;
    stretch.place = place_of_rows(spec, part, {begin, end}, {held_begin, held_end}, whole_sizes);
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

namespace {

// Calls read(stored tensor, first element in it, elements of the stretch before, number of elements) for pieces of at
// most `most` elements that are contiguous in the stored tensor.
template <class Read>
void load_stretch(const StateTensor& stretch, const PiecedTensors& file, const std::string& prefix, std::int64_t most,
                  const Read& read) {
  const bool is_piece = !stretch.place.whole.empty();
  const std::vector<std::int64_t>& whole = is_piece ? stretch.place.whole : stretch.shape;
  const std::int64_t row = product(std::span(whole).subspan(1));
  // A stretch consists of whole rows, or of a matrix's rows between two columns.
  const std::int64_t columns = product(std::span(stretch.shape).subspan(1));
  const std::int64_t first = is_piece ? stretch.place.offset[0] * row : 0;
  const PiecedTensor stored = file.at(prefix + stretch.name, whole, first, stretch.shape[0] * row);
  if (columns != row) {
    for (std::int64_t r = 0; r < stretch.shape[0]; ++r) {
      read(stored, first + r * row + stretch.place.offset[1], r * columns, columns);
    }
    return;
  }
  for (std::int64_t done = 0; done < stretch.shape[0] * row;) {
    const std::int64_t count = std::min(most, stretch.shape[0] * row - done);
    read(stored, first + done, done, count);
    done += count;
  }
}

}  // namespace

void load_states(const StateLayout& layout, const PiecedTensors& file, const std::string& prefix, TensorStore& store,
                 std::size_t piece_bytes) {
  std::vector<std::byte> staging;
  for (const NamedType& tensor : store.tensors()) {
    const DType dtype = tensor.type.dtype;
    const std::size_t size = size_of(dtype);
    const std::int64_t most = elements_in_piece(piece_bytes, dtype);
    for (const StateTensor& stretch : layout.of(tensor)) {
      if (!stretch.is_part && !file.contains(prefix + stretch.name)) continue;
      load_stretch(stretch, file, prefix, most,
                   [&](const PiecedTensor& stored, std::int64_t from, std::int64_t done, std::int64_t count) {
                     staging.resize(static_cast<std::size_t>(count) * size);
                     stored.read(from, dtype, staging);
                     store.upload(tensor.name, static_cast<std::size_t>(stretch.first + done) * size, staging);
                   });
    }
  }
}

}  // namespace hone
