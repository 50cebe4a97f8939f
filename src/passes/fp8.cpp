#include "passes/fp8.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/fp8_linear/fp8_linear.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/linear.h"
#include "ops/scaled_grouped_linear/scaled_grouped_linear.h"
#include "ops/scaled_linear/scaled_linear.h"
#include "program/tensor_store.h"

namespace hone {
namespace {

constexpr std::string_view kHeldSuffix = " in e4m3";  // of the state of a weight
constexpr std::string_view kHeldScaleSuffix = " in e4m3, scale";
constexpr std::string_view kTurnedSuffix = " in e4m3, transposed";
constexpr std::string_view kTurnedScaleSuffix = " in e4m3, transposed, scale";

// The states of a weight [n, k] with this name, declared in `program`; of W^T, too, if `transposed`.
QuantizedWeights held_states(Program& program, const std::string& name, const Type& weight, bool transposed) {
  // The types are those of the operation that writes the states.
  const std::optional<Type> input = weight;
  const std::vector<Type> types =
      op_registry().get("quantize_weight").infer({&input, 1}, QuantizeWeightAttributes{.transposed = transposed});
  // A copy of the name: it may be that of a value of the program, which moves when a state is declared.
  const auto state = [&program, name](std::string_view suffix, const Type& type) {
    const std::string named = name + std::string(suffix);
    const ValueId known = program.find(Role::kState, named);
    return known != kNoValue ? program.tensor(known) : program.state(named, type);
  };
  QuantizedWeights held{.plain = {state(kHeldSuffix, types[QuantizeWeightOut::weight]),
                                  state(kHeldScaleSuffix, types[QuantizeWeightOut::scale])},
                        .transposed = {}};
  if (transposed) {
    held.transposed = {state(kTurnedSuffix, types[QuantizeWeightOut::other]),
                       state(kTurnedScaleSuffix, types[QuantizeWeightOut::other_scale])};
  }
  return held;
}

// The weights whose copies a program holds in states.
std::vector<NamedType> held_weights(const Program& program) {
  std::vector<NamedType> weights;
  for (const Value& value : program.values()) {
    if (value.role != Role::kState || !value.name.ends_with(kHeldSuffix)) continue;
    std::string name = value.name.substr(0, value.name.size() - kHeldSuffix.size());
    const ValueId weight = program.find(Role::kWeight, name);
    if (weight != kNoValue) weights.push_back({std::move(name), program.value(weight).type});
  }
  return weights;
}

// The operands of a layer with these names are at the same indices for one matrix and for those of experts.
static_assert(std::size_t{LinearIn::x} == std::size_t{GroupedLinearIn::x} &&
              std::size_t{LinearIn::weight} == std::size_t{GroupedLinearIn::weight});

bool is_grouped(const Node& node) { return node.op->name() == "grouped_linear"; }

class Fp8Rewriter {
 public:
  Fp8Rewriter(const Program& program, const Fp8Weights& weights, bool training, Fp8Copies copies)
      : program_(program), weights_(weights), training_(training), copies_(copies), rewriter_(program) {
    for (const Node& node : program.nodes()) {
      if (quantizes(node) && trains(node) && !is_grouped(node)) with_columns_.insert(node.inputs[LinearIn::x]);
    }
  }

  Program run() {
    for (const Node& node : program_.nodes()) {
      if (!quantizes(node)) {
        rewriter_.replay(node);
        continue;
      }
      rewriter_.program().set_scope(node.scope);
      rewriter_.program().set_phase(node.phase);
      rewriter_.map(node.outputs[0], is_grouped(node) ? grouped_product(node) : product(node));
    }
    return rewriter_.finish();
  }

 private:
  [[nodiscard]] bool quantizes(const Node& node) const {
    const bool linear = node.op->name() == "linear" && !node.attributes.as<LinearAttributes>().f32_output;
    if (!linear && !is_grouped(node)) return false;
    const Value& weight = program_.value(node.inputs[LinearIn::weight]);
    return weight.role == Role::kWeight && weights_.contains(weight.name);
  }
  [[nodiscard]] bool trains(const Node& node) const {
    return training_ && program_.value(node.inputs[LinearIn::weight]).trainable;
  }

  const QuantizedRows& quantized(ValueId x) {
    const auto known = quantized_.find(x);
    if (known != quantized_.end()) return known->second;
    const bool columns = with_columns_.contains(x);
    return quantized_.emplace(x, quantize(rewriter_.mapped(x), {.columns = columns, .blocks = columns})).first->second;
  }

  // The operand of experts, with columns if their weight is trained.
  QuantizedRows quantized_experts(const Node& node) {
    const ValueId x = node.inputs[GroupedLinearIn::x];
    if (!trains(node)) return quantized(x);
    return quantize_experts(rewriter_.mapped(x), rewriter_.mapped(node.inputs[GroupedLinearIn::start]),
                            {.experts = node.attributes.as<GroupedLinearAttributes>().experts, .blocks = true});
  }

  Tensor product(const Node& node) {
    QuantizedRows x = quantized(node.inputs[LinearIn::x]);
    if (!trains(node)) x.columns = x.column_scale = Tensor();
    const Tensor weight = rewriter_.mapped(node.inputs[LinearIn::weight]);
    const Tensor bias = node.inputs.size() > LinearIn::bias ? rewriter_.mapped(node.inputs[LinearIn::bias]) : Tensor();
    const QuantizedWeights copies =
        holds() ? held_states(rewriter_.program(), weight.value().name, weight.type(), true)
                : quantize_weight(weight, {.transposed = training_ && copies_ == Fp8Copies::kKept});
    return scaled_linear(x, copies.plain, bias, training_ ? weight : Tensor(), copies.transposed);
  }

  // Both products of experts that read a weight read W, so that no transposed copy is needed.
  Tensor grouped_product(const Node& node) {
    const QuantizedRows x = quantized_experts(node);
    const Tensor weight = rewriter_.mapped(node.inputs[GroupedLinearIn::weight]);
    const QuantizedWeight copy = holds()
                                     ? held_states(rewriter_.program(), weight.value().name, weight.type(), false).plain
                                     : quantize_weight(weight).plain;
    const bool keeps = training_ && copies_ != Fp8Copies::kMade;
    return scaled_grouped_linear(x, copy, rewriter_.mapped(node.inputs[GroupedLinearIn::start]),
                                 node.attributes.as<GroupedLinearAttributes>(),
                                 {.weight = training_ ? weight : Tensor(), .kept = keeps ? copy : QuantizedWeight{}});
  }

  [[nodiscard]] bool holds() const { return training_ && copies_ == Fp8Copies::kHeld; }

  const Program& program_;
  const Fp8Weights& weights_;
  bool training_;
  Fp8Copies copies_;
  ProgramRewriter rewriter_;
  std::set<ValueId> with_columns_;              // operands of a trainable weight that is one matrix
  std::map<ValueId, QuantizedRows> quantized_;  // of values of the old program
};

}  // namespace

Program with_fp8(const Program& program, const Fp8Weights& weights, bool training, Fp8Copies copies) {
  return Fp8Rewriter(program, weights, training, copies).run();
}

Program with_quantized_inputs(const Program& program) {
  const auto quantizes = [](const Node& node) {
    return node.op->name() == "fp8_linear" && node.attributes.as<Fp8LinearAttributes>().quantizes_x;
  };
  if (std::ranges::none_of(program.nodes(), quantizes)) return program;
  ProgramRewriter rewriter(program);
  std::map<ValueId, QuantizedRows> quantized;  // of values of the old program
  for (const Node& node : program.nodes()) {
    if (!quantizes(node)) {
      rewriter.replay(node);
      continue;
    }
    rewriter.program().set_scope(node.scope);
    rewriter.program().set_phase(node.phase);
    const auto mapped = [&](std::size_t input) {
      return input < node.inputs.size() ? rewriter.mapped(node.inputs[input]) : Tensor();
    };
    const auto [found, added] = quantized.try_emplace(node.inputs[Fp8LinearIn::x]);
    if (added) found->second = quantize(mapped(Fp8LinearIn::x), {.any_rows = true});
    const QuantizedWeight weight{mapped(Fp8LinearIn::weight), mapped(Fp8LinearIn::scale)};
    rewriter.map(node.outputs[0], scaled_linear_of_any_rows(found->second, weight, mapped(Fp8LinearIn::bias)));
  }
  return rewriter.finish();
}

Program quantization_of(const Program& training) {
  Program program;
  for (const NamedType& weight : held_weights(training)) {
    const bool transposed = training.find(Role::kState, weight.name + std::string(kTurnedSuffix)) != kNoValue;
    quantize_weight_into(program.weight(weight.name, weight.type),
                         held_states(program, weight.name, weight.type, transposed));
  }
  return program;
}

std::size_t held_fp8_bytes(const Program& training) {
  std::vector<NamedType> states;
  const Program program = quantization_of(training);
  for (const Value& value : program.values()) {
    if (value.role == Role::kState && value.producer < 0) states.push_back({value.name, value.type});
  }
  return TensorStore::bytes_of(states);
}

}  // namespace hone
