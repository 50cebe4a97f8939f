#include "ops/add_rms_norm/add_rms_norm.h"

#include "core/error.h"
#include "ops/add/add.h"
#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"

namespace hone {
namespace {

// (dsum or none, dnormalised, sum, weight, rstd, dweight or none) -> (gradient of both x and residual, dweight or
// nothing), dweight in place.
class AddRmsNormBackward final : public Op {
 public:
  std::string_view name() const override { return "add_rms_norm_backward"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    std::vector<Type> outputs{required(inputs, AddRmsNormBackwardIn::x, name())};
    if (const Type* dweight = given(inputs, AddRmsNormBackwardIn::dweight)) outputs.push_back(*dweight);
    return outputs;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 9.0 * static_cast<double>(outputs[AddRmsNormBackwardOut::dx].elements());
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t output) const override {
    return output == AddRmsNormBackwardOut::dweight ? std::optional<std::size_t>(AddRmsNormBackwardIn::dweight)
                                                    : std::nullopt;
  }
};

const AddRmsNormBackward kAddRmsNormBackward;

// (x, residual, weight) -> (sum, normalised, rstd [rows])
class AddRmsNorm final : public FusedOp {
 public:
  std::string_view name() const override { return "add_rms_norm"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  Attributes default_attributes() const override { return RmsNormAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, AddRmsNormIn::x, name());
    const Type& residual = required(inputs, AddRmsNormIn::residual, name());
    const Type& weight = required(inputs, AddRmsNormIn::weight, name());
    expect(x == residual, name(),
           text_of("x and residual must have one type, not ", to_text(x), " and ", to_text(residual)));
    expect(x.shape.size() == 2 && weight.shape.size() == 1 && x.shape[1] == weight.shape[0] && x.dtype == weight.dtype,
           name(), text_of("x is ", to_text(x), ", weight ", to_text(weight), "; expected [rows, n] and [n]"));
    return {x, x, Type{accumulator_of(x.dtype), {x.shape[0]}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 5.0 * static_cast<double>(outputs[AddRmsNormOut::sum].elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dsum = builder.output_gradient(AddRmsNormOut::sum);
    const Tensor dnormalised = builder.output_gradient(AddRmsNormOut::y);
    Tensor gradient = dsum;
    if (dnormalised) {
      const Tensor dweight = builder.needs(AddRmsNormIn::weight) ? builder.accumulator(AddRmsNormIn::weight) : Tensor();
      const std::vector<Tensor> inputs{dsum,
                                       dnormalised,
                                       builder.output(AddRmsNormOut::sum),
                                       builder.input(AddRmsNormIn::weight),
                                       builder.output(AddRmsNormOut::rstd),
                                       dweight};
      const std::vector<Tensor> outputs = builder.program().append(kAddRmsNormBackward, {}, inputs);
      gradient = outputs[AddRmsNormBackwardOut::dx];
      if (dweight) builder.set_accumulator(AddRmsNormIn::weight, outputs[AddRmsNormBackwardOut::dweight]);
    }
    if (!gradient) return;
    for (const std::size_t i : {AddRmsNormIn::x, AddRmsNormIn::residual}) {
      if (builder.needs(i)) builder.add(i, gradient);
    }
  }
  int fusion_priority() const override { return 200; }
  // Fuses an `add` and the rms_norm that is the first node to read the sum. If another node read the sum first, or a
  // node between the two read the norm's weight, gradients would be summed in another order.
  std::optional<Fusion> fuse(const Program& program, std::size_t first) const override {
    const std::vector<Node>& nodes = program.nodes();
    const Node& sum = nodes[first];
    if (sum.op->name() != "add") return std::nullopt;
    const ValueId total = sum.outputs[0];
    std::size_t second = first + 1;
    while (second < nodes.size() && !reads(nodes[second], total)) ++second;
    if (second == nodes.size() || nodes[second].op->name() != "rms_norm") return std::nullopt;
    const Node& norm = nodes[second];
    const ValueId weight = norm.inputs[RmsNormIn::weight];
    if (norm.inputs[RmsNormIn::x] != total || program.value(weight).producer >= 0 ||
        program.value(weight).type.dtype != program.value(total).type.dtype) {
      return std::nullopt;
    }
    for (std::size_t i = first + 1; i < second; ++i) {
      if (reads(nodes[i], weight)) return std::nullopt;
    }
    return Fusion{.nodes = {first, second},
                  .inputs = {sum.inputs[AddIn::a], sum.inputs[AddIn::b], weight},
                  .attributes = norm.attributes,
                  .outputs = {{total, AddRmsNormOut::sum},
                              {norm.outputs[RmsNormOut::y], AddRmsNormOut::y},
                              {norm.outputs[RmsNormOut::rstd], AddRmsNormOut::rstd}}};
  }
};

const AddRmsNorm kAddRmsNorm;

}  // namespace

std::pair<Tensor, Tensor> add_rms_norm(Tensor x, Tensor residual, Tensor weight, const RmsNormAttributes& attributes) {
  const std::vector<Tensor> inputs{x, residual, weight};
  const std::vector<Tensor> outputs = x.program().append(kAddRmsNorm, attributes, inputs);
  return {outputs[AddRmsNormOut::sum], outputs[AddRmsNormOut::y]};
}

void register_add_rms_norm(OpRegistry& registry) {
  registry.add(kAddRmsNorm);
  registry.add(kAddRmsNormBackward);
}

}  // namespace hone
