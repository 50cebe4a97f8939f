#include "passes/recompute.h"

#include <algorithm>
#include <vector>

#include "backend/device_model.h"
#include "core/error.h"
#include "passes/layer.h"
#include "program/memory_plan.h"

namespace hone {
namespace {

// A forward node that may run again: every value it makes is an activation of its own.
bool can_repeat(const Program& program, const Node& node) {
  if (node.phase != Phase::forward || updates_in_place(node)) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    return id == kNoValue || program.value(program.storage_of(id)).role != Role::state;
  });
}

// A value of a layer that the backward pass reads and that need not be kept, and what dropping it costs. Outside the
// layers little is kept, and a head costs as much as many layers.
struct Candidate {
  ValueId value = kNoValue;
  double seconds_per_byte = 0;
  bool of_pairs = false;  // made from pairs of tokens
};

// Products of any dtype count by the rate of bf16: the ratio of products to bytes is what ranks the candidates.
double seconds_of(const Cost& cost, const DeviceModel& device) {
  return cost.flops / device.bf16_flops.per_second +
         (cost.bytes_read + cost.bytes_written) / device.copy_bytes.per_second;
}

std::vector<Candidate> find_candidates(const Program& program, DeviceKind device) {
  const DeviceModel model = built_in_model(device);
  const std::size_t count = program.values().size();
  std::vector<bool> crosses(count, false);  // read by another layer's forward nodes, or an output
  std::vector<bool> read_backward(count, false);
  for (const Node& node : program.nodes()) {
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const Value& value = program.value(id);
      if (value.producer < 0) continue;
      const Node& producer = program.nodes()[static_cast<std::size_t>(value.producer)];
      if (producer.phase != Phase::forward) continue;
      if (node.phase == Phase::forward) {
        if (layer_of(node.scope) != layer_of(producer.scope)) crosses[static_cast<std::size_t>(id)] = true;
      } else {
        read_backward[static_cast<std::size_t>(id)] = true;
      }
    }
  }
  for (const Output& output : program.outputs()) crosses[static_cast<std::size_t>(output.value)] = true;

  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < count; ++i) {
    if (!read_backward[i] || crosses[i]) continue;
    const Node& producer = program.nodes()[static_cast<std::size_t>(program.values()[i].producer)];
    if (!is_in_layer(producer.scope) || !can_repeat(program, producer)) continue;
    const auto bytes = static_cast<double>(std::max<std::size_t>(program.values()[i].type.bytes(), 1));
    const Cost cost = program.cost(producer);
    candidates.push_back({static_cast<ValueId>(i), seconds_of(cost, model) / bytes, cost.pair_flops > 0});
  }
  return candidates;
}

class Recomputer {
 public:
  Recomputer(const Program& program, const std::vector<bool>& dropped)
      : from_(program), dropped_(dropped), rewriter_(program), again_(program.values().size(), kNoValue) {}

  Program run() {
    for (const Node& node : from_.nodes()) {
      if (node.phase == Phase::forward) {
        rewriter_.replay(node);
      } else {
        replay_backward(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  void replay_backward(const Node& node) {
    std::vector<Tensor> inputs;
    inputs.reserve(node.inputs.size());
    for (const ValueId id : node.inputs) inputs.push_back(available(id));
    rewriter_.program().set_scope(node.scope);
    rewriter_.program().set_phase(node.phase);
    const std::vector<Tensor> outputs = rewriter_.program().append(*node.op, node.attributes, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter_.map(node.outputs[i], outputs[i]);
  }

  // The kept value, or the one made again, here and now if it is the first time.
  Tensor available(ValueId id) {
    if (id == kNoValue || !dropped_[static_cast<std::size_t>(id)]) return rewriter_.mapped(id);
    ValueId& again = again_[static_cast<std::size_t>(id)];
    if (again == kNoValue) repeat(from_.nodes()[static_cast<std::size_t>(from_.value(id).producer)]);
    return rewriter_.program().tensor(again);
  }

  void repeat(const Node& node) {
    std::vector<Tensor> inputs;
    inputs.reserve(node.inputs.size());
    for (const ValueId id : node.inputs) inputs.push_back(available(id));
    rewriter_.program().set_scope(node.scope);
    rewriter_.program().set_phase(Phase::backward);
    const std::vector<Tensor> outputs = rewriter_.program().append(*node.op, node.attributes, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      again_[static_cast<std::size_t>(node.outputs[i])] = outputs[i].id();
  }

  const Program& from_;
  const std::vector<bool>& dropped_;
  ProgramRewriter rewriter_;
  std::vector<ValueId> again_;  // by old value: its second incarnation
};

// Everything that only forward nodes of dropped values' layers read is dropped with them: a value that must be made
// again reads its own inputs again, which are then dropped too unless they are kept for the backward pass anyway.
std::vector<bool> close_over(const Program& program, std::vector<bool> dropped, const std::vector<bool>& kept) {
  for (std::size_t n = program.nodes().size(); n-- > 0;) {
    const Node& node = program.nodes()[n];
    if (node.phase != Phase::forward) continue;
    const bool repeats = std::any_of(node.outputs.begin(), node.outputs.end(),
                                     [&](ValueId id) { return dropped[static_cast<std::size_t>(id)]; });
    if (!repeats) continue;
    for (const ValueId id : node.inputs) {
      if (id == kNoValue || program.value(id).producer < 0 || kept[static_cast<std::size_t>(id)]) continue;
      if (can_repeat(program, program.nodes()[static_cast<std::size_t>(program.value(id).producer)])) {
        dropped[static_cast<std::size_t>(id)] = true;
      }
    }
  }
  return dropped;
}

// The program with the first `count` candidates dropped.
Program drop(const Program& program, const std::vector<Candidate>& candidates, std::size_t count) {
  const std::size_t values = program.values().size();
  std::vector<bool> dropped(values, false);
  std::vector<bool> kept(values, false);
  for (const Node& node : program.nodes()) {
    for (const ValueId id : node.inputs) {
      if (id == kNoValue || program.value(id).producer < 0) continue;
      const Node& producer = program.nodes()[static_cast<std::size_t>(program.value(id).producer)];
      const bool crosses = node.phase != Phase::forward || layer_of(node.scope) != layer_of(producer.scope);
      if (crosses) kept[static_cast<std::size_t>(id)] = true;
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    dropped[static_cast<std::size_t>(candidates[i].value)] = true;
    kept[static_cast<std::size_t>(candidates[i].value)] = false;
  }
  dropped = close_over(program, std::move(dropped), kept);
  return Recomputer(program, dropped).run();
}

}  // namespace

Program recompute(const Program& program, Recompute policy, std::size_t budget, DeviceKind device) {
  if (policy == Recompute::none) return program;
  std::vector<Candidate> candidates = find_candidates(program, device);
  const auto with = [&](std::size_t drops) { return drops == 0 ? program : drop(program, candidates, drops); };
  const auto fits = [&](std::size_t drops) { return plan_memory(with(drops), device).arena <= budget; };
  // `low` drops are too few, unless they are the fewest that the policy allows.
  std::size_t low = 0;
  std::size_t high = candidates.size();
  if (policy == Recompute::layers) {
    const auto pairs = std::ranges::stable_partition(candidates, [](const Candidate& each) { return !each.of_pairs; });
    low = candidates.size() - pairs.size();
  } else {
    std::ranges::stable_sort(candidates, {}, &Candidate::seconds_per_byte);
  }
  if (low == high || fits(low)) return with(low);
  // The fewest drops that fit; more drops do not always save more, so the last step takes whatever fits.
  while (low + 1 < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return with(high);
}

}  // namespace hone
