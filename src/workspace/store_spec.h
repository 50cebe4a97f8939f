// What a run keeps in memory beside its activations: each store, said once, for the plan, the run and its checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"
#include "program/tensor_store.h"

namespace hone {

// When what a store holds is of account.
enum class Region : std::uint8_t {
  persistent,  // from the start of the run to its end
  train,       // while micro-batches and updates run; zero whenever such a phase begins
  rollout,     // while completions are generated; zero whenever such a phase begins
};

struct StoreSpec {
  std::string name;  // "weights", "optimizer"
  Role role = Role::state;
  Placement placement = Placement::device;
  Region region = Region::persistent;
  // What the names of its tensors in a checkpoint's training state begin with; empty: they are not kept there.
  std::string saved_as;
  std::vector<NamedType> tensors;

  [[nodiscard]] std::size_t bytes() const { return TensorStore::bytes_of(tensors); }
};

// The store that a program's states belong to. Those that lie in the host's memory form a store of their own, "NAME of
// the host".
struct StateStore {
  std::string name;
  Region region = Region::persistent;
  std::string saved_as = {};
};

}  // namespace hone
