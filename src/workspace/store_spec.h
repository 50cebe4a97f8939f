// The description of a tensor store: memory that a run holds in addition to its activations, such as weights,
// gradients, optimizer states and the KV cache. The memory plan, the run and its checkpoints all use the same
// description.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"
#include "program/tensor_store.h"

namespace hone {

// The phase of a run during which the contents of a store must be preserved. If rollouts reuse the memory of training
// (Workspace::share_training_memory_with_rollouts), Workspace::enter() zero-fills those of training when training
// begins.
enum class Region : std::uint8_t {
  kPersistent,  // from the start of the run to its end
  kTrain,       // while micro-batches and updates run
  kRollout,     // while completions are generated
};

// A store and the tensors in it.
struct StoreSpec {
  std::string name;  // "weights", "optimizer"
  Role role = Role::kState;
  Placement placement = Placement::kDevice;
  Region region = Region::kPersistent;
  // Prefix of the names of its tensors in a checkpoint's training state. Empty: the tensors are not saved there.
  std::string saved_as;
  std::vector<NamedType> tensors;

  [[nodiscard]] std::size_t bytes() const { return TensorStore::bytes_of(tensors); }
};

// The store that holds a program's states. States placed in host memory form a separate store, "NAME of the host".
struct StateStore {
  std::string name;
  Region region = Region::kPersistent;
  std::string saved_as = {};
};

}  // namespace hone
