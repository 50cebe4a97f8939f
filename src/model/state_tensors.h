// Saves and loads tensor stores (weights, optimizer states) to and from the tensor file of a training state. Tensors in
// the file are named after the parts of the checkpoint, so they do not depend on how hone groups parts into blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_pieces.h"
#include "model/weight_spec.h"
#include "program/tensor_store.h"

namespace hone {

// A range of a store's tensor and the tensor of the training state that it is stored as, in full or as a piece.
struct StateTensor {
  std::string name;                 // "model.layers.0.self_attn.q_proj.weight.exp_avg"
  std::vector<std::int64_t> shape;  // shape of the range
  TensorPlace place;                // position in the tensor of that name; empty: the whole tensor
  std::int64_t first = 0;           // index of its first element in the store's tensor
  bool is_part = true;              // false: rows that belong to no part, which files of tensor groups lack
};

// Rows of a block whose states a store holds, if it does not hold those of the whole block: one rank's share.
struct HeldRows {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// The naming of tensors in a training state.
enum class StateNames : std::uint8_t {
  kBlocks,  // format 1: each tensor of a store is one tensor under its own name
  kParts,   // format 2: by parts, see StateLayout
};

// Returns true if the blocks of 8-bit moments of a rank's part of a weight are blocks of the whole weight's: it has
// whole parts, which begin and end at boundaries of 256 elements.
[[nodiscard]] bool has_whole_state_blocks(const WeightSpec& part);

// The mapping from the tensors of a store to those of a training state.
//
// A weight or a state of the same shape ("BLOCK.STATE" in the store) becomes one tensor for each part of its block,
// named PART or PART.STATE. Its shape is that of the part in the block, [rows, columns], even if model folders store
// the part transposed or merged with others. Rows that belong to no part (for example of an adapter's B) are stored as
// pieces of BLOCK.STATE, except those of a tensor group's ranks: no program reads them.
//
// Scales of 8-bit moments, one for each 256 elements of the flattened block, become one tensor [scales] for each part
// if every part begins and ends on a boundary of 256 elements. Otherwise they stay one tensor, BLOCK.STATE, and so do
// states that belong to no weight ("nonfinite"). Scales of a rank's part whose blocks are not those of the whole weight
// are one tensor, whose name has the place and the shape of that part; only ranks with the same part can load them.
class StateLayout {
 public:
  // `specs` must outlive the layout. held: by name of the block; its states ("BLOCK.STATE") then have these rows only,
  // which begin at a multiple of 256 elements, and become pieces of the tensors above. Blocks without rows, and those
  // that are not listed, are held whole or not at all.
  explicit StateLayout(const std::vector<WeightSpec>& specs, StateNames names = StateNames::kParts,
                       std::map<std::string, HeldRows> held = {});

  // Ranges of the tensor, ordered by `first`. Throws Defect if a state's shape is neither that of its weight nor that
  // of its scales.
  [[nodiscard]] std::vector<StateTensor> of(const NamedType& tensor) const;

 private:
  using Specs = std::map<std::string_view, const WeightSpec*>;  // by name

  // Returns the block of a tensor "BLOCK" or "BLOCK.STATE", and sets `state` to ".STATE" in the second case.
  [[nodiscard]] Specs::const_iterator block_of(const std::string& tensor, std::string& state) const;

  StateNames names_;
  Specs specs_;
  std::map<std::string, HeldRows> held_;  // by name of the block
};

// Sources for writing all tensors of a store under names that begin with `prefix`. The store must outlive them.
[[nodiscard]] std::vector<TensorSource> state_sources(const StateLayout& layout, const TensorStore& store,
                                                      const std::string& prefix);

// Loads all tensors of a store. Throws Error with file and tensor if a tensor is missing, incomplete or has another
// shape (the message states both). Uses a staging buffer of piece_bytes in host memory.
void load_states(const StateLayout& layout, const PiecedTensors& file, const std::string& prefix, TensorStore& store,
                 std::size_t piece_bytes = kPieceBytes);

}  // namespace hone
