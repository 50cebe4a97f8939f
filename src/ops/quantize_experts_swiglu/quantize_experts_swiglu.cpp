#include "ops/quantize_experts_swiglu/quantize_experts_swiglu.h"

#include <array>

#include "ops/quantize_swiglu/quantize_swiglu.h"
#include "ops/registry.h"
#include "ops/swiglu/swiglu.h"
#include "program/fusions.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// The outputs of quantize_experts for a matrix of the dtype and rows of gate_up and k columns.
std::vector<Type> types_of_experts(const Type& gate_up, std::int64_t k, const Type& start, const Attributes& attributes,
                                   std::string_view name) {
  expect_gate_up(gate_up, name);
  const std::array<std::optional<Type>, 2> inputs{Type{gate_up.dtype, {gate_up.shape[0], k}}, start};
  return op_registry().get("quantize_experts").infer(inputs, attributes);
}

// (dy, gate_up, start) -> the outputs of quantize_experts for dgate_up
class QuantizeExpertsSwigluBackward final : public FusedOp {
 public:
  std::string_view name() const override { return "quantize_experts_swiglu_backward"; }
  OpCategory category() const override { return OpCategory::kActivation; }
  Attributes default_attributes() const override { return QuantizeExpertsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& gate_up = required(inputs, QuantizeExpertsSwigluBackwardIn::gate_up, name());
    return types_of_experts(gate_up, gate_up.row_size(),
                            required(inputs, QuantizeExpertsSwigluBackwardIn::start, name()), attributes, name());
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return elementwise_cost(Op::cost(inputs, outputs, attributes), 6, outputs);
  }
  int fusion_priority() const override { return 800; }
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    return backward_fused_with_quantize(program, first, "quantize_experts");
  }
};

const QuantizeExpertsSwigluBackward kQuantizeExpertsSwigluBackward;

// (gate_up, start) -> the outputs of quantize_experts for swiglu(gate_up)
class QuantizeExpertsSwiglu final : public FusedOp {
 public:
  std::string_view name() const override { return "quantize_experts_swiglu"; }
  OpCategory category() const override { return OpCategory::kActivation; }
  Attributes default_attributes() const override { return QuantizeExpertsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& gate_up = required(inputs, QuantizeExpertsSwigluIn::gate_up, name());
    return types_of_experts(gate_up, gate_up.row_size() / 2, required(inputs, QuantizeExpertsSwigluIn::start, name()),
                            attributes, name());
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return elementwise_cost(Op::cost(inputs, outputs, attributes), 5, outputs);
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(QuantizeOut::rows);
    if (!dy || !builder.needs(QuantizeExpertsSwigluIn::gate_up)) return;
    builder.add(QuantizeExpertsSwigluIn::gate_up, swiglu_gradient(dy, builder.input(QuantizeExpertsSwigluIn::gate_up)));
  }
  int fusion_priority() const override { return 700; }
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    return fused_with_reader(program, first, "swiglu", "quantize_experts");
  }
};

const QuantizeExpertsSwiglu kQuantizeExpertsSwiglu;

}  // namespace

QuantizedRows quantize_experts_swiglu(Tensor gate_up, Tensor start, const QuantizeExpertsAttributes& attributes) {
  return quantized_rows(gate_up.program().append(kQuantizeExpertsSwiglu, attributes, std::array{gate_up, start}));
}

void register_quantize_experts_swiglu(OpRegistry& registry) {
  registry.add(kQuantizeExpertsSwiglu);
  registry.add(kQuantizeExpertsSwigluBackward);
}

}  // namespace hone
