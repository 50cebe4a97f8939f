// A run's programs, the stores that follow from what they bind, and the memory that both take: described once, planned
// from that, allocated from that.
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

// How a program is used: when it runs, and where its bound values lie. Gradients lie in the store of that name.
struct ProgramUse {
  Region phase = Region::train;
  std::string weights = kWeightStore;  // a store of weights
  StateStore states = {};
};

class Workspace {
 public:
  // A workspace for a device that need not be there: what is added can be planned without one.
  explicit Workspace(DeviceKind device);
  // Shares an arena with others, and takes its device.
  explicit Workspace(std::shared_ptr<Arena> arena);
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;
  ~Workspace();

  // Declares a store of weights. `saved_as`: as StoreSpec has it.
  void add_weights(std::string name, std::vector<NamedType> tensors, std::string saved_as = {});
  // Adds a program. What it binds is added to the stores; throws Defect where a store of weights lacks one of its
  // weights, or a tensor is bound with two types.
  void add(std::string name, Program program, const ProgramUse& use);
  // Lets rollouts lie where gradients and the activations of training do, which are of no account meanwhile: KV pages
  // first, then their activations, at addresses that do not change, so that recorded launches stay valid.
  void lease_training_to_rollout() { leases_ = true; }

  [[nodiscard]] const std::vector<StoreSpec>& stores() const { return specs_; }
  [[nodiscard]] bool has_program(std::string_view name) const { return find(name) != nullptr; }
  // By the order in which they were added.
  [[nodiscard]] std::vector<std::string> program_names() const;
  [[nodiscard]] const Program& program(std::string_view name) const;
  // Bytes of the device's stores, without inputs and arena.
  [[nodiscard]] std::size_t store_bytes() const;
  // Bytes of everything.
  [[nodiscard]] MemoryBreakdown memory() const;

  // A store that is there already, in place of one to be allocated: its tensors are those that are declared.
  // TensorStore::view() of one that others hold is one, too.
  void provide(std::string_view name, TensorStore store);
  // Allocates what is left, zero-filled, and makes the programs ready to run. Nothing can be added afterwards. Asserts
  // that the device holds what memory() says, to the byte.
  void allocate(Device& device);

  // After allocate().
  [[nodiscard]] Executable& executable(std::string_view name) const;
  [[nodiscard]] TensorStore& store(std::string_view name);
  [[nodiscard]] const TensorStore& store(std::string_view name) const;
  [[nodiscard]] bool has_store(std::string_view name) const;
  // The stores that a checkpoint's training state holds, by what their tensors' names begin with there.
  struct SavedStore {
    std::string prefix;
    TensorStore* store = nullptr;
  };
  [[nodiscard]] std::vector<SavedStore> saved_stores();
  // Begins a phase: stores of that region that are leased, or lie where leased ones did, are zero then. Nothing happens
  // where the phase goes on, or nothing is leased.
  void enter(Region phase);

 private:
  struct ProgramEntry;

  [[nodiscard]] const ProgramEntry* find(std::string_view name) const;
  [[nodiscard]] const ProgramEntry& entry(std::string_view name) const;
  StoreSpec& spec_of(const std::string& name, Role role, Placement placement, Region region);
  void bind(const Program& program, const ProgramUse& use);
  [[nodiscard]] std::size_t bytes_in(Region region) const;  // of the device's stores
  [[nodiscard]] std::size_t arena_bytes(Region phase) const;
  void allocate_leased(Device& device);

  DeviceKind kind_;
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<Arena> rollout_arena_;  // the same one where nothing is leased
  Buffer leased_;
  bool leases_ = false;
  bool allocated_ = false;
  Region phase_ = Region::train;
  std::vector<StoreSpec> specs_;
  std::vector<std::unique_ptr<ProgramEntry>> programs_;
  std::map<std::string, TensorStore, std::less<>> stores_;
};

}  // namespace hone
