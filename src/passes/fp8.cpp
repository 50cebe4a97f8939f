#include "passes/fp8.h"

#include <map>
#include <set>

#include "ops/linear/linear.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace hone {
namespace {

class Fp8Rewriter {
 public:
  Fp8Rewriter(const Program& program, const Fp8Weights& weights, bool training, bool keeps)
      : program_(program), weights_(weights), training_(training), keeps_(keeps), rewriter_(program) {
    for (const Node& node : program.nodes()) {
      if (quantizes(node) && trains(node)) with_columns_.insert(node.inputs[LinearIn::x]);
    }
  }

  Program run() {
    for (const Node& node : program_.nodes()) {
      if (quantizes(node)) {
        replace(node);
      } else {
        rewriter_.replay(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  [[nodiscard]] bool quantizes(const Node& node) const {
    if (node.op->name() != "linear" || node.attributes.as<LinearAttributes>().f32_output) return false;
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

  void replace(const Node& node) {
    rewriter_.program().set_scope(node.scope);
    rewriter_.program().set_phase(node.phase);
    QuantizedRows x = quantized(node.inputs[LinearIn::x]);
    if (!trains(node)) x.columns = x.column_scale = Tensor();
    const Tensor weight = rewriter_.mapped(node.inputs[LinearIn::weight]);
    const Tensor bias = node.inputs.size() > LinearIn::bias ? rewriter_.mapped(node.inputs[LinearIn::bias]) : Tensor();
    const QuantizedWeights quantized = quantize_weight(weight, {.transposed = training_ && keeps_});
    rewriter_.map(node.outputs[0],
                  scaled_linear(x, quantized.plain, bias, training_ ? weight : Tensor(), quantized.transposed));
  }

  const Program& program_;
  const Fp8Weights& weights_;
  bool training_;
  bool keeps_;
  ProgramRewriter rewriter_;
  std::set<ValueId> with_columns_;              // operands of a trainable weight
  std::map<ValueId, QuantizedRows> quantized_;  // of values of the old program
};

}  // namespace

Program with_fp8(const Program& program, const Fp8Weights& weights, bool training, bool keeps) {
  return Fp8Rewriter(program, weights, training, keeps).run();
}

}  // namespace hone
