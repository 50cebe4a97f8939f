#include "passes/recompute.h"

#include <algorithm>
#include <vector>

#include "backend/device_model.h"
#include "core/error.h"
#include "passes/layer.h"
#include "program/memory_plan.h"

namespace hone {
namespace {

// Returns true if a node is a forward node that may run twice: it updates nothing in place and reads no state.
bool can_repeat(const Program& program, const Node& node) {
  if (node.phase != Phase::kForward || updates_in_place(node)) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    return id == kNoValue || program.value(program.storage_of(id)).role != Role::kState;
  });
}

// A value inside a layer that the backward pass reads and could recompute, and the cost of doing so. Values outside of
// layers are no candidates: they take little memory, and recomputing the head costs as much as many layers.
struct Candidate {
  ValueId value = kNoValue;
  double seconds_per_byte = 0;  // time to recompute, per byte of memory saved
  bool is_attention = false;    // result of work on pairs of tokens (attention)
};

// Estimated run time of a node. All matmuls count at the bf16 rate whatever their dtype, because only the ratio of FLOP
// to bytes matters for ranking candidates.
double seconds_of(const Cost& cost, const DeviceModel& device) {
  return cost.flops / device.bf16_flops.per_second +
         (cost.bytes_read + cost.bytes_written) / device.copy_bytes.per_second;
}

// Returns the candidates in the order of their values.
std::vector<Candidate> find_candidates(const Program& program, DeviceKind device) {
  const DeviceModel model = built_in_model(device);
  const std::size_t count = program.values().size();
  std::vector<bool> crosses(count, false);        // read by forward nodes of another layer, or an output
  std::vector<bool> read_backward(count, false);  // read by the backward pass
  for (const Node& node : program.nodes()) {
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const Value& value = program.value(id);
      if (value.producer < 0) continue;
      const Node& producer = program.nodes()[static_cast<std::size_t>(value.producer)];
      if (producer.phase != Phase::kForward) continue;
      if (node.phase == Phase::kForward) {
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

// Rewrites a program so that its backward pass recomputes the dropped values.
class Recomputer {
 public:
  Recomputer(const Program& program, const std::vector<bool>& dropped)
      : from_(program), dropped_(dropped), rewriter_(program), again_(program.values().size(), kNoValue) {}

  Program run() {
    for (const Node& node : from_.nodes()) {
      if (node.phase == Phase::kForward) {
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

  // Returns the kept value or its recomputed copy; recomputes it at this point on first use.
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
    rewriter_.program().set_phase(Phase::kBackward);
    const std::vector<Tensor> outputs = rewriter_.program().append(*node.op, node.attributes, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      again_[static_cast<std::size_t>(node.outputs[i])] = outputs[i].id();
  }

  const Program& from_;
  const std::vector<bool>& dropped_;
  ProgramRewriter rewriter_;
  std::vector<ValueId> again_;  // [values of the old program]: the recomputed copy, kNoValue: none so far
};

// Extends `dropped` to the inputs of recomputed nodes. Recomputing a value reads its inputs again; these are dropped as
// well, unless they are kept anyway (`kept`) or may not run twice. The nodes are visited backwards, so the inputs of
// inputs follow.
std::vector<bool> drop_inputs_of_recomputed(const Program& program, std::vector<bool> dropped,
                                            const std::vector<bool>& kept) {
  for (std::size_t n = program.nodes().size(); n-- > 0;) {
    const Node& node = program.nodes()[n];
    if (node.phase != Phase::kForward) continue;
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

// Returns the program with the first `count` candidates recomputed.
Program drop(const Program& program, const std::vector<Candidate>& candidates, std::size_t count) {
  const std::size_t values = program.values().size();
  std::vector<bool> dropped(values, false);
  std::vector<bool> kept(values, false);  // read by the backward pass or by another layer
  for (const Node& node : program.nodes()) {
    for (const ValueId id : node.inputs) {
      if (id == kNoValue || program.value(id).producer < 0) continue;
      const Node& producer = program.nodes()[static_cast<std::size_t>(program.value(id).producer)];
      const bool crosses = node.phase != Phase::kForward || layer_of(node.scope) != layer_of(producer.scope);
      if (crosses) kept[static_cast<std::size_t>(id)] = true;
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    dropped[static_cast<std::size_t>(candidates[i].value)] = true;
    kept[static_cast<std::size_t>(candidates[i].value)] = false;
  }
  dropped = drop_inputs_of_recomputed(program, std::move(dropped), kept);
  return Recomputer(program, dropped).run();
}

}  // namespace

Program recompute(const Program& program, Recompute policy, std::size_t budget, DeviceKind device) {
  if (policy == Recompute::kNone) return program;
  std::vector<Candidate> candidates = find_candidates(program, device);
  const auto with = [&](std::size_t drops) { return drops == 0 ? program : drop(program, candidates, drops); };
  const auto fits = [&](std::size_t drops) { return plan_memory(with(drops), device).arena <= budget; };
  // Invariant of the search below: `low` drops do not fit. Both policies start with the fewest drops that they allow.
  std::size_t low = 0;
  std::size_t high = candidates.size();
  if (policy == Recompute::kLayers) {
    const auto pairs =
        std::ranges::stable_partition(candidates, [](const Candidate& each) { return !each.is_attention; });
    low = candidates.size() - pairs.size();
  } else {
    std::ranges::stable_sort(candidates, {}, &Candidate::seconds_per_byte);
  }
  if (low == high || fits(low)) return with(low);
  // Binary search for the fewest drops that fit. Memory need not decrease with every further drop, so the result fits
  // but may not be the minimum.
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
