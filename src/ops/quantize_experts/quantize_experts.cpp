#include "ops/quantize_experts/quantize_experts.h"

#include <array>

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// (x, start) -> (rows, row_scale, columns, column_scale)
class QuantizeExperts final : public Op {
 public:
  std::string_view name() const override { return "quantize_experts"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  Attributes default_attributes() const override { return QuantizeExpertsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, QuantizeExpertsIn::x, name());
    const Type& start = required(inputs, QuantizeExpertsIn::start, name());
    const auto& a = attributes.as<QuantizeExpertsAttributes>();
    expect(a.experts > 0 && start == Type{DType::kI32, {a.experts + 1}}, name(),
           text_of("start is ", to_text(start), " of ", a.experts, " experts; expected i32[experts + 1]"));
    std::vector<Type> types = quantized_types(x, {}, name());
    const std::int64_t k = x.shape[1].size;
    const std::int64_t padded = padded_rows(x.rows(), a.experts);
    types.push_back({DType::kU8, {k, padded}});
    types.push_back(
        {DType::kF32, a.blocks ? Shape{k / kScaleBlock, weight_scale_stride(padded)} : Shape{padded / kScaleBlock, k}});
    return types;
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor gradient = builder.output_gradient(QuantizeOut::rows);
    if (gradient && builder.needs(QuantizeExpertsIn::x)) builder.add(QuantizeExpertsIn::x, gradient);
  }
};

const QuantizeExperts kQuantizeExperts;

}  // namespace

QuantizedRows quantize_experts(Tensor x, Tensor start, const QuantizeExpertsAttributes& attributes) {
  return quantized_rows(x.program().append(kQuantizeExperts, attributes, std::array{x, start}));
}

void register_quantize_experts(OpRegistry& registry) { registry.add(kQuantizeExperts); }

}  // namespace hone
