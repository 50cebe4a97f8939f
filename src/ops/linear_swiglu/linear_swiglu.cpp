#include "ops/linear_swiglu/linear_swiglu.h"

#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "program/fusions.h"

namespace hone {
namespace {

// (x, weight, bias or none) -> y
class LinearSwiglu final : public InferenceFusedOp {
 public:
  std::string_view name() const override { return "linear_swiglu"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    return op_registry().get("swiglu").infer(std::vector<std::optional<Type>>{gate_up_of(inputs)}, {});
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const Type gate_up = gate_up_of(inputs);
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = op_registry().get("linear").cost(inputs, {&gate_up, 1}, LinearAttributes{}).flops +
                 op_registry().get("swiglu").cost(std::vector<std::optional<Type>>{gate_up}, outputs, {}).flops;
    return cost;
  }
  int fusion_priority() const override { return 900; }
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    const Node& product = program.nodes()[first];
    if (product.op->name() != "linear" || product.attributes.as<LinearAttributes>().f32_output) return std::nullopt;
    if (program.value(product.outputs[0]).type.rows() > kMostLinearSwigluRows) return std::nullopt;
    return fused_with_reader(program, first, "linear", "swiglu");
  }

 private:
  static Type gate_up_of(InputTypes inputs) { return op_registry().get("linear").infer(inputs, LinearAttributes{})[0]; }
};

const LinearSwiglu kLinearSwiglu;

}  // namespace

Tensor linear_swiglu(Tensor x, Tensor weight, Tensor bias) {
  return x.program().append1(kLinearSwiglu, {}, {x, weight, bias});
}

void register_linear_swiglu(OpRegistry& registry) { registry.add(kLinearSwiglu); }

}  // namespace hone
