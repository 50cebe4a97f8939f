#include "workspace/workspace.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/host_memory.h"
#include "core/error.h"
#include "program/memory_plan.h"

namespace hone {
namespace {

// Alignment in bytes of an arena within shared memory, that of a device's own allocations: kernels of libraries rely on
// it.
constexpr std::size_t kArenaAlignment = 256;

std::size_t aligned_for_arena(std::size_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// Name of the host-memory store that belongs to a store of states.
std::string host_name(const std::string& store) { return store + " of the host"; }

}  // namespace

struct Workspace::ProgramEntry {
  std::string name;
  ProgramUse use;
  std::optional<Program> program;  // empty once the executable owns it
  MemoryPlan plan;
  std::unique_ptr<Executable> executable;
};

Workspace::Workspace(DeviceKind device) : kind_(device) {}
Workspace::Workspace(std::shared_ptr<Arena> arena) : kind_(arena->device().kind()), arena_(std::move(arena)) {}
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;
Workspace::~Workspace() = default;

StoreSpec& Workspace::spec_of(const std::string& name, Role role, Placement placement, Region region) {
  const auto found = std::ranges::find(specs_, name, &StoreSpec::name);
  if (found == specs_.end()) {
    return specs_.emplace_back(StoreSpec{.name = name, .role = role, .placement = placement, .region = region});
  }
  HONE_ASSERT(found->role == role && found->placement == placement && found->region == region, "store ", name,
              " is used with two roles, placements or regions");
  return *found;
}

void Workspace::add_weights(std::string name, std::vector<NamedType> tensors, std::string saved_as) {
  HONE_ASSERT(std::ranges::find(specs_, name, &StoreSpec::name) == specs_.end(), "store ", name, " is declared twice");
  specs_.push_back(
      {.name = std::move(name), .role = Role::kWeight, .saved_as = std::move(saved_as), .tensors = std::move(tensors)});
}

// Adds the program's bound values to the stores that hold them.
void Workspace::bind(const Program& program, const ProgramUse& use) {
  for (const Value& value : program.values()) {
    if (value.producer >= 0 || value.role == Role::kInput) continue;
    StoreSpec* spec = nullptr;
    if (value.role == Role::kWeight) {
      spec = &spec_of(use.weights, Role::kWeight, Placement::kDevice, Region::kPersistent);
    } else if (value.role == Role::kGradient) {
      spec = &spec_of(kGradientStore, Role::kGradient, Placement::kDevice, Region::kTrain);
    } else {
      const bool in_host = value.placement == Placement::kHost;
      spec = &spec_of(in_host ? host_name(use.states.name) : use.states.name, Role::kState, value.placement,
                      use.states.region);
      spec->saved_as = use.states.saved_as;
    }
    const auto found = std::ranges::find(spec->tensors, value.name, &NamedType::name);
    if (found == spec->tensors.end()) {
      HONE_ASSERT(value.role != Role::kWeight, spec->name, " has no weight ", value.name);
      spec->tensors.push_back({value.name, value.type});
    } else {
      HONE_ASSERT(found->type == value.type, value.name, " is bound as ", to_text(found->type), " and as ",
                  to_text(value.type));
    }
  }
}

void Workspace::add(std::string name, Program program, const ProgramUse& use) {
  HONE_ASSERT(!allocated_ && find(name) == nullptr, "program ", name, " is added twice or after allocate()");
  bind(program, use);
  auto entry = std::make_unique<ProgramEntry>();
  entry->name = std::move(name);
  entry->use = use;
  entry->plan = plan_memory(program, kind_);
  if (!use.inputs.empty()) shared_inputs_[use.inputs].add(program);
  entry->program = std::move(program);
  programs_.push_back(std::move(entry));
}

const Workspace::ProgramEntry* Workspace::find(std::string_view name) const {
  const auto found = std::ranges::find_if(programs_, [&](const auto& entry) { return entry->name == name; });
  return found == programs_.end() ? nullptr : found->get();
}

const Workspace::ProgramEntry& Workspace::entry(std::string_view name) const {
  const ProgramEntry* found = find(name);
  HONE_ASSERT(found != nullptr, "there is no program ", name);
  return *found;
}

std::vector<std::string> Workspace::program_names() const {
  std::vector<std::string> names;
  names.reserve(programs_.size());
  for (const auto& entry : programs_) names.push_back(entry->name);
  return names;
}

const Program& Workspace::program(std::string_view name) const {
  const ProgramEntry& found = entry(name);
  if (found.executable) return found.executable->program();
  HONE_ASSERT(found.program.has_value(), "the program ", name, " has no description");
  return *found.program;
}

std::size_t Workspace::store_bytes() const {
  return bytes_in(Region::kPersistent) + bytes_in(Region::kTrain) + bytes_in(Region::kRollout);
}

std::size_t Workspace::bytes_in(Region region) const {
  std::size_t bytes = 0;
  for (const StoreSpec& spec : specs_) {
    if (spec.region == region && spec.placement == Placement::kDevice) bytes += spec.bytes();
  }
  return bytes;
}

std::size_t Workspace::arena_bytes(Region phase) const {
  std::size_t bytes = 0;
  for (const auto& entry : programs_) {
    if (entry->use.phase == phase) bytes = std::max(bytes, entry->plan.arena);
  }
  return bytes;
}

std::size_t Workspace::input_bytes() const {
  std::size_t bytes = 0;
  for (const auto& entry : programs_) bytes += entry->use.inputs.empty() ? entry->plan.inputs : 0;
  for (const auto& [name, layout] : shared_inputs_) bytes += layout.bytes();
  return bytes;
}

std::size_t Workspace::phase_bytes(Region phase) const {
  return aligned_for_arena(bytes_in(phase)) + align_up(arena_bytes(phase));
}

MemoryBreakdown Workspace::memory() const {
  MemoryBreakdown memory;
  for (const StoreSpec& spec : specs_) {
    const bool in_host = spec.placement == Placement::kHost;
    std::size_t* of = nullptr;
    switch (spec.role) {
      case Role::kWeight:
        of = spec.name == kWeightStore ? &memory.weights : &memory.reference;
        break;
      case Role::kGradient:
        of = &memory.gradients;
        break;
      default:
        of = spec.region == Region::kRollout      ? &memory.kv_cache
             : spec.region == Region::kPersistent ? (in_host ? &memory.paged : &memory.optimizer)
             : in_host                            ? &memory.offloaded
                                                  : &memory.stages;
        break;
    }
    *of += spec.bytes();
  }
  for (const auto& entry : programs_) memory.add_program(entry->plan);
  memory.inputs = input_bytes();
  if (leases_) {
    // Both phases use the same memory, which holds the larger of the two; the rest was counted twice.
    const std::size_t counted = memory.gradients + memory.kv_cache + memory.arena;
    const std::size_t shared = std::max(phase_bytes(Region::kTrain), phase_bytes(Region::kRollout));
    memory.arena += std::max(counted, shared) - counted;  // alignment, if one of the phases needs nothing
    memory.leased = std::max(counted, shared) - shared;
  }
  return memory;
}

void Workspace::provide(std::string_view name, TensorStore store) {
  stores_.insert_or_assign(std::string(name), std::move(store));
}

void Workspace::allocate_leased(Device& device) {
  leased_ = Buffer(device, std::max(phase_bytes(Region::kTrain), phase_bytes(Region::kRollout)));
  // Each phase places its stores from the start of the shared memory on, followed by its arena, which is returned.
  const auto place = [&](Region region) {
    std::size_t offset = 0;
    for (const StoreSpec& spec : specs_) {
      if (spec.region != region || spec.placement != Placement::kDevice) continue;
      stores_.insert_or_assign(spec.name, TensorStore(device, spec.tensors, leased_.data() + offset));
      offset += spec.bytes();
    }
    return std::make_shared<Arena>(
        device, std::span(leased_.data() + aligned_for_arena(offset), align_up(arena_bytes(region))));
  };
  arena_ = place(Region::kTrain);
  rollout_arena_ = place(Region::kRollout);
}

void Workspace::allocate(Device& device) {
  HONE_ASSERT(!allocated_ && device.kind() == kind_, "the workspace was planned for another device");
  allocated_ = true;
  std::size_t provided = 0;
  for (const auto& [name, store] : stores_) {
    const auto spec = std::ranges::find(specs_, name, &StoreSpec::name);
    HONE_ASSERT(spec != specs_.end() && store.bytes() == spec->bytes(), "the provided store ", name,
                " differs from the declared one");
    provided += store.bytes();
  }
  const std::size_t before = device.allocated_bytes();
  const bool owns_arena = arena_ == nullptr;
  if (leases_) {
    HONE_ASSERT(owns_arena, "an arena shared with other workspaces cannot be leased");
    allocate_leased(device);
  } else {
    if (owns_arena) arena_ = std::make_shared<Arena>(device);
    rollout_arena_ = arena_;
  }
  for (const StoreSpec& spec : specs_) {
    if (stores_.contains(spec.name)) continue;
    Device& holder = spec.placement == Placement::kHost ? host_memory_of(device) : device;
    stores_.emplace(spec.name, TensorStore(holder, spec.tensors));
  }
  const auto store_of = [&](const std::string& name) {
    const auto found = stores_.find(name);
    return found == stores_.end() ? nullptr : &found->second;
  };
  std::map<std::string, std::shared_ptr<InputBuffer>> inputs;
  for (const auto& [name, layout] : shared_inputs_) inputs.emplace(name, std::make_shared<InputBuffer>(device, layout));
  for (const auto& entry : programs_) {
    const ProgramUse& use = entry->use;
    std::optional<Program> program = std::exchange(entry->program, std::nullopt);
    HONE_ASSERT(program.has_value(), "the program ", entry->name, " is allocated already");
    entry->executable = std::make_unique<Executable>(*std::move(program), entry->plan,
                                                     use.phase == Region::kRollout ? rollout_arena_ : arena_,
                                                     Bindings{.weights = store_of(use.weights),
                                                              .gradients = store_of(kGradientStore),
                                                              .states = store_of(use.states.name),
                                                              .host_states = store_of(host_name(use.states.name))},
                                                     use.inputs.empty() ? nullptr : inputs.at(use.inputs));
  }
  if (!owns_arena) return;
  // Allocate the arena now and compare what the device holds with the plan.
  (void)arena_->base();
  const std::size_t held = device.allocated_bytes() - before + provided;
  const MemoryBreakdown plan = memory();
  // On a CPU device, stores in host memory count as allocations of the device too.
  const std::size_t beside = &host_memory_of(device) == &device ? plan.offloaded + plan.paged : 0;
  HONE_ASSERT(held == plan.total() + beside, "the run allocated ", held, " bytes, planned were ", plan.total());
}

Executable& Workspace::executable(std::string_view name) const {
  const ProgramEntry& found = entry(name);
  HONE_ASSERT(found.executable != nullptr, "program ", name, " is not allocated");
  return *found.executable;
}

TensorStore& Workspace::store(std::string_view name) {
  const auto found = stores_.find(name);
  HONE_ASSERT(found != stores_.end(), "there is no store ", name);
  return found->second;
}

const TensorStore& Workspace::store(std::string_view name) const {
  const auto found = stores_.find(name);
  HONE_ASSERT(found != stores_.end(), "there is no store ", name);
  return found->second;
}

bool Workspace::has_store(std::string_view name) const { return stores_.contains(name); }

std::vector<Workspace::SavedStore> Workspace::saved_stores() {
  std::vector<SavedStore> saved;
  for (const StoreSpec& spec : specs_) {
    if (!spec.saved_as.empty()) saved.push_back({spec.saved_as, &store(spec.name)});
  }
  return saved;
}

void Workspace::enter(Region phase) {
  HONE_ASSERT(allocated_, "the workspace is not allocated");
  if (std::exchange(phase_, phase) == phase || !leases_ || phase != Region::kTrain) return;
  for (const StoreSpec& spec : specs_) {
    if (spec.region == phase && spec.placement == Placement::kDevice) stores_.find(spec.name)->second.fill_zero();
  }
}

}  // namespace hone
