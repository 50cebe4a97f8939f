#include "ops/expert_bias/expert_bias.h"

#include "core/error.h"
#include "ops/registry.h"

namespace hone {
namespace {

// (bias, load, bad) -> bias, load, in place
class ExpertBias final : public Op {
 public:
  std::string_view name() const override { return "expert_bias"; }
  OpCategory category() const override { return OpCategory::kOptimizer; }
  Attributes default_attributes() const override { return ExpertBiasAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& bias = required(inputs, ExpertBiasIn::bias, name());
    const Type& load = required(inputs, ExpertBiasIn::load, name());
    const Type& bad = required(inputs, ExpertBiasIn::bad, name());
    expect((bias.dtype == DType::kF32 || bias.dtype == DType::kF64) && bias.shape.size() == 1 && load == bias &&
               bad == Type{DType::kI32, {1}},
           name(),
           text_of("bias is ", to_text(bias), ", load ", to_text(load), ", bad ", to_text(bad),
                   "; expected twice f32[experts] and i32[1]"));
    return {bias, load};
  }
  std::optional<std::size_t> alias(std::size_t output) const override { return output; }
};

const ExpertBias kExpertBias;

}  // namespace

ExpertBiasTensors expert_bias(const ExpertBiasTensors& tensors, Tensor bad, const ExpertBiasAttributes& attributes) {
  const std::vector<Tensor> inputs{tensors.bias, tensors.load, bad};
  const std::vector<Tensor> outputs = tensors.bias.program().append(kExpertBias, attributes, inputs);
  return {outputs[ExpertBiasOut::bias], outputs[ExpertBiasOut::load]};
}

void register_expert_bias(OpRegistry& registry) { registry.add(kExpertBias); }

}  // namespace hone
