#include "passes/offload.h"

#include <algorithm>
#include <string>

#include "ops/offload/offload.h"
#include "passes/layer.h"
#include "passes/layer_runs.h"

namespace hone {
namespace {

constexpr std::string_view kStatePrefix = "offload.";
// Activations smaller than 1/16 of the largest candidate stay on the device: their copies would cost launches and save
// little memory.
constexpr std::size_t kMinSizeRatio = 16;

// The offload of a value. Each step is inserted before the node of the given index.
struct OffloadInterval {
  ValueId value = kNoValue;
  std::size_t start = 0;  // start of the copy to the host, right after the producer
  std::size_t left = 0;   // end of that copy; the storage on the device is free from here on
  std::size_t fetch = 0;  // start of the copy back to the device
  std::size_t back = 0;   // end of that copy, before the first reader in the backward pass
};

// Finds the values to offload.
class OffloadCandidates {
 public:
  explicit OffloadCandidates(const Program& program) : program_(program), runs_(layer_runs(program)) {
    for (std::size_t n = 0; n < runs_.size(); ++n) {
      if (n == 0 || runs_[n] != runs_[n - 1]) first_of_run_.push_back(n);
    }
  }

  [[nodiscard]] std::vector<OffloadInterval> find() const {
    std::vector<OffloadInterval> trips;
    std::size_t largest = 0;
    for (std::size_t id = 0; id < program_.values().size(); ++id) {
      if (std::optional<OffloadInterval> trip = offload_interval(static_cast<ValueId>(id))) {
        trips.push_back(*trip);
        largest = std::max(largest, program_.values()[id].type.bytes());
      }
    }
    std::erase_if(trips, [&](const OffloadInterval& trip) {
      return program_.value(trip.value).type.bytes() * kMinSizeRatio < largest;
    });
    return trips;
  }

 private:
  // Returns no trip if the value is not a forward activation of a layer, shares its storage, is an output, or is read
  // by the backward pass too soon for both copies to overlap with other layers.
  [[nodiscard]] std::optional<OffloadInterval> offload_interval(ValueId id) const {
    const Value& value = program_.value(id);
    if (value.role != Role::kActivation || value.producer < 0 || value.alias_of != kNoValue || is_used_otherwise(id))
      return {};
    const auto producer = static_cast<std::size_t>(value.producer);
    const Node& made = program_.nodes()[producer];
    if (made.phase != Phase::kForward || !is_in_layer(made.scope)) return {};
    // The last forward reader and the first backward reader bound the time on the host.
    std::size_t last_forward = producer;
    std::optional<std::size_t> first_backward;
    for (std::size_t n = producer + 1; n < program_.nodes().size(); ++n) {
      const Node& node = program_.nodes()[n];
      if (!reads(node, id)) continue;
      if (node.phase == Phase::kForward) last_forward = n;
      if (node.phase == Phase::kBackward && !first_backward) first_backward = n;
    }
    if (!first_backward) return {};
    // The copy to the host may take the whole run after the last forward reader, the copy back the whole run before the
    // first backward reader, and the two must be at least one run apart.
    const std::size_t leaves = runs_[last_forward] + 2;
    if (leaves + 1 >= runs_[*first_backward]) return {};
    return OffloadInterval{id, producer + 1, first_of_run_[leaves], first_of_run_[runs_[*first_backward] - 1],
                           *first_backward};
  }

  // Returns true if another value aliases the storage, a count is read from the value, or it is an output.
  [[nodiscard]] bool is_used_otherwise(ValueId id) const {
    const bool by_value = std::any_of(program_.values().begin(), program_.values().end(),
                                      [&](const Value& value) { return value.alias_of == id; });
    const bool counts =
        std::ranges::any_of(program_.counts(), [&](const CountSpec& spec) { return spec.source == id; });
    return by_value || counts ||
           std::any_of(program_.outputs().begin(), program_.outputs().end(),
                       [&](const Output& output) { return output.value == id; });
  }

  const Program& program_;
  std::vector<std::size_t> runs_;          // [nodes], run of each node
  std::vector<std::size_t> first_of_run_;  // [runs], first node of each run
};

}  // namespace

Program offload_activations(const Program& program) {
  const std::vector<OffloadInterval> trips = OffloadCandidates(program).find();
  ProgramRewriter rewriter(program);
  std::vector<Tensor> homes(trips.size());    // states in host memory
  std::vector<Tensor> fetched(trips.size());  // copies back on the device
  for (std::size_t n = 0; n < program.nodes().size(); ++n) {
    const Node& node = program.nodes()[n];
    for (std::size_t t = 0; t < trips.size(); ++t) {
      const OffloadInterval& trip = trips[t];
      if (n != trip.start && n != trip.left && n != trip.fetch && n != trip.back) continue;
      rewriter.program().set_scope(program.nodes()[n == trip.start ? n - 1 : n].scope);
      rewriter.program().set_phase(node.phase);
      const auto slot = static_cast<std::int64_t>(2 * t);  // even slots track copies out, odd ones copies back
      if (n == trip.start) {
        homes[t] = rewriter.program().state(std::string(kStatePrefix) + std::to_string(t),
                                            program.value(trip.value).type, Placement::kHost);
        homes[t] = offload(rewriter.mapped(trip.value), homes[t], slot);
      }
      if (n == trip.left) homes[t] = offload_wait(rewriter.mapped(trip.value), homes[t], slot);
      if (n == trip.fetch) fetched[t] = fetch(homes[t], slot + 1);
      if (n == trip.back) rewriter.map(trip.value, fetch_wait(fetched[t], slot + 1));
    }
    rewriter.replay(node);
  }
  return rewriter.finish();
}

}  // namespace hone
