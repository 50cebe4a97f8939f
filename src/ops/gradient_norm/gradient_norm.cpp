#include "ops/gradient_norm/gradient_norm.h"

#include "core/error.h"
#include "ops/registry.h"

namespace hone {
namespace {

class GradientNorm final : public Op {
 public:
  std::string_view name() const override { return "gradient_norm"; }
  OpCategory category() const override { return OpCategory::kOptimizer; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const DType dtype = accumulator_of(required(inputs, 0, name()).dtype);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Type& gradient = required(inputs, i, name());
      expect(is_floating(gradient.dtype) && accumulator_of(gradient.dtype) == dtype, name(),
             text_of("gradient ", i, " is ", to_text(gradient), ", the first ", to_text(required(inputs, 0, name())),
                     "; expected floating types, either all f64 or none"));
    }
    return {Type{dtype, {1}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      cost.flops += 2.0 * static_cast<double>(required(inputs, i, name()).elements());
    }
    return cost;
  }
};

const GradientNorm kGradientNorm;

}  // namespace

Tensor gradient_norm(std::span<const Tensor> gradients) {
  HONE_ASSERT(!gradients.empty(), "gradient_norm needs at least one gradient");
  return gradients[0].program().append(kGradientNorm, {}, gradients)[0];
}

void register_gradient_norm(OpRegistry& registry) { registry.add(kGradientNorm); }

}  // namespace hone
