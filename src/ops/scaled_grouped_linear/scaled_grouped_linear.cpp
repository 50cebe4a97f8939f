#include "ops/scaled_grouped_linear/scaled_grouped_linear.h"

#include <algorithm>

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

using In = ScaledGroupedLinearIn;

void expect_scale(InputTypes inputs, std::size_t index, const Shape& shape, std::string_view op) {
  const Type& scale = required(inputs, index, op);
  const Type wanted{DType::kF32, shape};
  expect(scale == wanted, op, text_of("a scale is ", to_text(scale), "; expected ", to_text(wanted)));
}

// Checks the operands: the rows have as many columns as the weight, or as one expert's matrix has rows if `turned`.
// Returns the type of the product.
Type product_type(InputTypes inputs, const Attributes& attributes, bool turned, std::string_view op) {
  const Type& rows = required(inputs, In::x, op);
  const Type& weight = required(inputs, In::weight, op);
  const Type& start = required(inputs, In::start, op);
  const std::int64_t experts = attributes.as<GroupedLinearAttributes>().experts;
  expect(
      experts > 0 && weight.dtype == DType::kU8 && weight.shape.size() == 2 &&
          weight.shape[0].size % (experts * kScaleBlock) == 0 && weight.shape[1].size % kScaleBlock == 0 &&
          start == Type{DType::kI32, {experts + 1}},
      op,
      text_of("weight is ", to_text(weight), ", start ", to_text(start), " of ", experts,
              " experts; expected u8 [experts x n, k], n and k multiples of ", kScaleBlock, ", and i32[experts + 1]"));
  const std::int64_t n = weight.shape[0].size / experts;
  const std::int64_t k = weight.shape[1].size;
  expect(rows.dtype == DType::kU8 && rows.shape.size() == 2 && rows.rows() % kQuantizedRows == 0 &&
             rows.shape[1].size == (turned ? n : k),
         op,
         text_of("the rows are ", to_text(rows), ", the weight ", to_text(weight), " of ", experts,
                 " experts; expected u8 [rows, ", turned ? n : k, "], rows a multiple of ", kQuantizedRows));
  expect_scale(inputs, In::x_scale, {rows.shape[1].size / kScaleBlock, rows.rows()}, op);
  expect_scale(inputs, In::weight_scale, {weight.shape[0].size / kScaleBlock, weight_scale_stride(k)}, op);
  return {DType::kBf16, {rows.shape[0], turned ? k : n}};
}

// Work of a product that reads the operands up to `start`.
Cost product_cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
  Cost cost;
  for (const std::optional<Type>& input : inputs.first(In::start + 1))
    cost.bytes_read += static_cast<double>(input->bytes());
  cost.bytes_written = static_cast<double>(outputs[0].bytes());
  cost.flops = 2.0 * static_cast<double>(inputs[In::x]->elements()) * static_cast<double>(outputs[0].shape[1].size) *
               attributes.as<GroupedLinearAttributes>().share;
  return cost;
}

// (dy, dy_scale, weight, weight_scale, start) -> dx
class ScaledGroupedLinearInputGradient final : public Op {
 public:
  std::string_view name() const override { return "scaled_grouped_linear_input_gradient"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  Attributes default_attributes() const override { return GroupedLinearAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    return {product_type(inputs, attributes, true, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return product_cost(inputs, outputs, attributes);
  }
};

const ScaledGroupedLinearInputGradient kInputGradient;

// (x, x_scale, weight, weight_scale, start, rows, source, kept, kept_scale), those after start may be none -> y
class ScaledGroupedLinear final : public Op {
 public:
  std::string_view name() const override { return "scaled_grouped_linear"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  Attributes default_attributes() const override { return GroupedLinearAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type y = product_type(inputs, attributes, false, name());
    const auto expect_bf16 = [&](std::size_t index, std::string_view what) {
      if (inputs.size() <= index || !inputs[index]) return;
      const Type wanted{DType::kBf16, inputs[index == In::rows ? In::x : In::weight]->shape};
      expect(*inputs[index] == wanted, name(),
             text_of(what, " is ", to_text(*inputs[index]), "; expected ", to_text(wanted)));
    };
    expect_bf16(In::rows, "what x is quantized from");
    expect_bf16(In::source, "what the weight is quantized from");
    return {y};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return product_cost(inputs, outputs, attributes);
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy) return;
    const Tensor start = builder.input(In::start);
    if (builder.needs(In::source)) {
      builder.set_accumulator(
          In::source, grouped_weight_gradient(dy, builder.input(In::rows), start, builder.accumulator(In::source),
                                              node.attributes.as<GroupedLinearAttributes>()));
    }
    if (builder.needs(In::x)) {
      const QuantizedRows quantized = quantize(dy, {});
      QuantizedWeight weight{builder.input(In::kept), builder.input(In::kept_scale)};
      if (!weight.weight) weight = quantize_weight(builder.input(In::source)).plain;
      builder.add(In::x,
                  builder.program().append1(kInputGradient, node.attributes,
                                            {quantized.rows, quantized.row_scale, weight.weight, weight.scale, start}));
    }
  }
};

const ScaledGroupedLinear kForward;

}  // namespace

Tensor scaled_grouped_linear(const QuantizedRows& x, const QuantizedWeight& weight, Tensor start,
                             const GroupedLinearAttributes& attributes, const ScaledGroupedSources& sources) {
  return x.rows.program().append1(kForward, attributes,
                                  {x.rows, x.row_scale, weight.weight, weight.scale, start, sources.rows,
                                   sources.weight, sources.kept.weight, sources.kept.scale});
}

void register_scaled_grouped_linear(OpRegistry& registry) {
  registry.add(kForward);
  registry.add(kInputGradient);
}

}  // namespace hone
