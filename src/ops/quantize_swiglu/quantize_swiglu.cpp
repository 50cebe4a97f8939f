#include "ops/quantize_swiglu/quantize_swiglu.h"

#include <algorithm>

#include "core/error.h"
#include "ops/registry.h"
#include "ops/swiglu/swiglu.h"
#include "program/fusions.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// The outputs of quantize for a matrix of the dtype and rows of gate_up and k columns.
std::vector<Type> types_for(const Type& gate_up, std::int64_t k, const Attributes& attributes, std::string_view name) {
  expect_gate_up(gate_up, name);
  return quantized_types({gate_up.dtype, {gate_up.shape[0], k}}, attributes.as<QuantizeAttributes>(), name);
}

// (dy, gate_up) -> the outputs of quantize for dgate_up
class QuantizeSwigluBackward final : public FusedOp {
 public:
  std::string_view name() const override { return "quantize_swiglu_backward"; }
  OpCategory category() const override { return OpCategory::kActivation; }
  Attributes default_attributes() const override { return QuantizeAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& gate_up = required(inputs, QuantizeSwigluBackwardIn::gate_up, name());
    return types_for(gate_up, gate_up.row_size(), attributes, name());
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return elementwise_cost(Op::cost(inputs, outputs, attributes), 6, outputs);
  }
  int fusion_priority() const override { return 600; }
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    return backward_fused_with_quantize(program, first, "quantize");
  }
};

const QuantizeSwigluBackward kQuantizeSwigluBackward;

// (gate_up) -> the outputs of quantize for swiglu(gate_up)
class QuantizeSwiglu final : public FusedOp {
 public:
  std::string_view name() const override { return "quantize_swiglu"; }
  OpCategory category() const override { return OpCategory::kActivation; }
  Attributes default_attributes() const override { return QuantizeAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& gate_up = required(inputs, 0, name());
    return types_for(gate_up, gate_up.row_size() / 2, attributes, name());
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return elementwise_cost(Op::cost(inputs, outputs, attributes), 5, outputs);
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(QuantizeOut::rows);
    if (dy && builder.needs(0)) builder.add(0, swiglu_gradient(dy, builder.input(0)));
  }
  int fusion_priority() const override { return 500; }
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    return fused_with_reader(program, first, "swiglu", "quantize");
  }
};

const QuantizeSwiglu kQuantizeSwiglu;

}  // namespace

void expect_gate_up(const Type& gate_up, std::string_view op) {
  expect(gate_up.shape.size() == 2 && gate_up.shape[1].size % (2 * kScaleBlock) == 0, op,
         text_of("gate_up is ", to_text(gate_up), "; expected bf16 [rows, 2 n], n a multiple of ", kScaleBlock));
}

Cost elementwise_cost(Cost cost, double flops, std::span<const Type> outputs) {
  cost.flops = flops * static_cast<double>(outputs[QuantizeOut::rows].elements());
  return cost;
}

std::optional<Fusion> backward_fused_with_quantize(const Program& program, std::size_t first,
                                                   std::string_view quantize) {
  std::optional<Fusion> fusion = fused_with_reader(program, first, "swiglu_backward", quantize);
  if (fusion && program.value(fusion->inputs[SwigluBackwardIn::dy]).type.row_size() % kScaleBlock != 0) return {};
  return fusion;
}

QuantizedRows quantize_swiglu(Tensor gate_up, const QuantizeAttributes& attributes) {
  return quantized_rows(gate_up.program().append(kQuantizeSwiglu, attributes, {&gate_up, 1}));
}

void register_quantize_swiglu(OpRegistry& registry) {
  registry.add(kQuantizeSwiglu);
  registry.add(kQuantizeSwigluBackward);
}

}  // namespace hone
