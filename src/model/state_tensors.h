// Stores of weights and of their states to and from a training state's file, named by the checkpoint's parts.
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

// A stretch of a store's tensor, and the tensor of a training state that it is, or is a piece of.
struct StateTensor {
  std::string name;                 // "model.layers.0.self_attn.q_proj.weight.exp_avg"
  std::vector<std::int64_t> shape;  // of the stretch
  TensorPlace place;                // in the tensor of that name; empty: all of it
  std::int64_t first = 0;           // its first element in the store's tensor
};

enum class StateNames : std::uint8_t {
  blocks,  // the first format: each tensor of a store by its own name, in one
  parts,
};

// How the tensors of a store are cut and called.
//
// A weight, or a state of its shape ("BLOCK.STATE" in the store), becomes one tensor for each part of its block, named
// PART or PART.STATE and shaped as the block holds the part: [rows, columns] also where model folders hold the part
// transposed, and its own tensor where they hold it merged with others. Rows of no part (of an adapter's B, say) are
// stored as pieces of BLOCK.STATE. Scales of 8-bit moments, one for 256 elements of the flattened block, become one
// tensor [scales] for each part where all parts begin and end between two scales, else they stay one, BLOCK.STATE, as
// does what belongs to no weight ("nonfinite").
class StateLayout {
 public:
  // `specs` outlive it.
  explicit StateLayout(const std::vector<WeightSpec>& specs, StateNames names = StateNames::parts);

  [[nodiscard]] std::vector<StateTensor> of(const NamedType& tensor) const;  // in the order of `first`

 private:
  StateNames names_;
  std::map<std::string_view, const WeightSpec*> specs_;  // by name
};

// What is to be written of a store, under names that begin with `prefix`; the store outlives it.
[[nodiscard]] std::vector<TensorSource> state_sources(const StateLayout& layout, const TensorStore& store,
                                                      const std::string& prefix);

// Reads all of a store back. Throws Error, naming file and tensor, where one is missing, incomplete or of another shape
// (both are shown). Stages piece_bytes of the host's memory.
void load_states(const StateLayout& layout, const PiecedTensors& file, const std::string& prefix, TensorStore& store,
                 std::size_t piece_bytes = kPieceBytes);

}  // namespace hone
