// The programs of a run and the memory that they need. Memory planning and allocation both start from the same
// description, so the plan matches the allocation to the byte.
//
// Use: declare weight stores, add programs (each adds the gradients and states that it binds to their stores), read
// memory() for the plan, then allocate() and run the executables.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "program/executable.h"
#include "workspace/memory_breakdown.h"
#include "workspace/store_spec.h"

namespace hone {

inline constexpr const char* kWeightStore = "weights";
inline constexpr const char* kReferenceStore = "reference";
inline constexpr const char* kGradientStore = "gradients";

// The phase in which a program runs and the stores that hold its bound values. Gradients are always in the store
// kGradientStore.
struct ProgramUse {
  Region phase = Region::kTrain;
  std::string weights = kWeightStore;  // name of the weight store
  StateStore states = {};
  // Programs with the same name here have one buffer of inputs: they run one after the other, and each run sets all
  // that its kernels read (program/input_buffer.h). Empty: separate inputs.
  std::string inputs = {};
};

class Workspace {
 public:
  // A workspace for a kind of device that need not be present: programs can be added and planned without one.
  explicit Workspace(DeviceKind device);
  // A workspace that shares `arena` with other workspaces and runs on the arena's device.
  explicit Workspace(std::shared_ptr<Arena> arena);
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;
  ~Workspace();

  // Declares a weight store. `saved_as` is StoreSpec::saved_as. Throws Defect if the name is taken.
  void add_weights(std::string name, std::vector<NamedType> tensors, std::string saved_as = {});
  // Adds a program and the gradients and states that it binds to their stores. Throws Defect if the weight store lacks
  // one of its weights, a tensor is bound with two types, the name is taken or allocate() has run.
  void add(std::string name, Program program, const ProgramUse& use);
  // Makes rollouts reuse the memory of gradients and training activations, whose contents are not needed while
  // completions are generated. The KV cache comes first, then the activations of rollouts. No address changes between
  // phases, so recorded launches stay valid.
  void share_training_memory_with_rollouts() { leases_ = true; }
  [[nodiscard]] bool shares_training_memory_with_rollouts() const { return leases_; }

  [[nodiscard]] const std::vector<StoreSpec>& stores() const { return specs_; }
  [[nodiscard]] bool has_program(std::string_view name) const { return find(name) != nullptr; }
  // Names of the programs in the order in which they were added.
  [[nodiscard]] std::vector<std::string> program_names() const;
  [[nodiscard]] const Program& program(std::string_view name) const;
  [[nodiscard]] DeviceKind device_kind() const { return kind_; }
  // Bytes of the device's stores and activations that only this phase uses.
  [[nodiscard]] std::size_t phase_bytes(Region phase) const;
  // Bytes of all stores on the device, without inputs and arena.
  [[nodiscard]] std::size_t store_bytes() const;
  // Memory of everything by category.
  [[nodiscard]] MemoryBreakdown memory() const;

  // Supplies an existing store instead of allocating it; its tensors must be the declared ones. A TensorStore::view()
  // of a store owned elsewhere is allowed.
  void provide(std::string_view name, TensorStore store);
  // Allocates the remaining stores zero-filled and makes the programs ready to run. Nothing can be added afterwards.
  // Asserts that the device holds exactly the bytes that memory() reports.
  void allocate(Device& device);

  // The following may be called after allocate().
  [[nodiscard]] Executable& executable(std::string_view name) const;
  [[nodiscard]] TensorStore& store(std::string_view name);
  [[nodiscard]] const TensorStore& store(std::string_view name) const;
  [[nodiscard]] bool has_store(std::string_view name) const;
  // A store that checkpoints save, and the prefix of its tensors' names in the training state.
  struct SavedStore {
    std::string prefix;
    TensorStore* store = nullptr;
  };
  [[nodiscard]] std::vector<SavedStore> saved_stores();
  // Begins a phase. If memory is leased, zero-fills the gradients when training begins; the content of a KV cache is
  // undefined when rollouts begin, for they read no row that they have not written.
  void enter(Region phase);

 private:
  struct ProgramEntry;

  [[nodiscard]] const ProgramEntry* find(std::string_view name) const;
  [[nodiscard]] const ProgramEntry& entry(std::string_view name) const;
  StoreSpec& spec_of(const std::string& name, Role role, Placement placement, Region region);
  void bind(const Program& program, const ProgramUse& use);
  [[nodiscard]] std::size_t bytes_in(Region region) const;  // bytes of the device's stores of that region
  [[nodiscard]] std::size_t arena_bytes(Region phase) const;
  [[nodiscard]] std::size_t input_bytes() const;
  void allocate_leased(Device& device);

  DeviceKind kind_;
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<Arena> rollout_arena_;  // the same as arena_ if nothing is leased
  Buffer leased_;
  bool leases_ = false;
  bool allocated_ = false;
  Region phase_ = Region::kTrain;
  std::vector<StoreSpec> specs_;
  std::vector<std::unique_ptr<ProgramEntry>> programs_;
  std::map<std::string, InputLayout, std::less<>> shared_inputs_;  // by ProgramUse::inputs
  std::map<std::string, TensorStore, std::less<>> stores_;
};

}  // namespace hone
