#include "ops/scaled_grouped_linear/scaled_grouped_linear.h"

#include "core/error.h"
#include "ops/accumulated.h"
#include "ops/registry.h"
#include "ops/scaled_linear/scaled_linear.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// Checks the operands: the rows have as many columns as the weight, or as one expert's matrix has rows if `turned`.
// Returns the type of the product.
Type product_type(InputTypes inputs, const Attributes& attributes, bool turned, std::string_view op) {
  const Type& rows = required(inputs, ScaledGroupedLinearIn::x, op);
  const Type& weight = required(inputs, ScaledGroupedLinearIn::weight, op);
  const Type& start = required(inputs, ScaledGroupedLinearIn::start, op);
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
  expect_scale(inputs, ScaledGroupedLinearIn::x_scale, {rows.shape[1].size / kScaleBlock, rows.rows()}, op);
  expect_scale(inputs, ScaledGroupedLinearIn::weight_scale,
               {weight.shape[0].size / kScaleBlock, weight_scale_stride(k)}, op);
  return {DType::kBf16, {rows.shape[0], turned ? k : n}};
}

// Work of a product that reads the operands up to `start`.
Cost scaled_grouped_linear_product_cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes,
                                        std::string_view op) {
  Cost cost;
  for (std::size_t i = 0; i <= ScaledGroupedLinearIn::start; ++i)
    cost.bytes_read += static_cast<double>(required(inputs, i, op).bytes());
  cost.bytes_written = static_cast<double>(outputs[0].bytes());
  cost.flops = 2.0 * static_cast<double>(required(inputs, ScaledGroupedLinearIn::x, op).elements()) *
               static_cast<double>(outputs[0].shape[1].size) * attributes.as<GroupedLinearAttributes>().share;
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
    return scaled_grouped_linear_product_cost(inputs, outputs, attributes, name());
  }
};

const ScaledGroupedLinearInputGradient kScaledGroupedLinearInputGradient;

// (dy, dy_scale, x, x_scale, start, dweight, accumulated or none) -> dweight, in place; dy and x are columns of
// quantize_experts
class ScaledGroupedWeightGradient final : public Op {
 public:
  std::string_view name() const override { return "scaled_grouped_linear_weight_gradient"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  Attributes default_attributes() const override { return GroupedLinearAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    using WeightIn = ScaledGroupedWeightGradientIn;
    const Type& dy = required(inputs, WeightIn::dy, name());
    const Type& x = required(inputs, WeightIn::x, name());
    const Type& start = required(inputs, WeightIn::start, name());
    const Type& dweight = required(inputs, WeightIn::dweight, name());
    const std::int64_t experts = attributes.as<GroupedLinearAttributes>().experts;
    expect(
        dy.dtype == DType::kU8 && x.dtype == DType::kU8 && dy.shape.size() == 2 && x.shape.size() == 2 &&
            dy.shape[1] == x.shape[1] && start == Type{DType::kI32, {experts + 1}} &&
            dweight.shape == Shape{experts * dy.shape[0].size, x.shape[0]} &&
            (dweight.dtype == DType::kF32 || dweight.dtype == DType::kBf16),
        name(),
        text_of("dy is ", to_text(dy), ", x ", to_text(x), ", start ", to_text(start), ", dweight ", to_text(dweight),
                "; expected u8 [n, padded], u8 [k, padded], i32[experts + 1] and [experts x n, k]"));
    expect_scale(inputs, WeightIn::dy_scale, {scale_blocks(dy.shape[1].size), dy.shape[0].size}, name());
    expect_scale(inputs, WeightIn::x_scale, {scale_blocks(x.shape[0].size), weight_scale_stride(x.shape[1].size)},
                 name());
    expect_accumulated(inputs, WeightIn::accumulated, name());
    return {dweight};
  }
  // The rows that fill up those of experts are not counted.
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    using WeightIn = ScaledGroupedWeightGradientIn;
    Cost cost = first_traffic(Op::cost(inputs, outputs, attributes), inputs, WeightIn::accumulated, outputs[0]);
    const Type& x = required(inputs, WeightIn::x, name());
    const auto& a = attributes.as<GroupedLinearAttributes>();
    const std::int64_t filled = padded_rows(0, a.experts);
    cost.flops = 2.0 * static_cast<double>(x.shape[1].size - filled) * a.share * static_cast<double>(x.shape[0].size) *
                 static_cast<double>(required(inputs, WeightIn::dy, name()).shape[0].size);
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t) const override { return ScaledGroupedWeightGradientIn::dweight; }
};

const ScaledGroupedWeightGradient kScaledGroupedWeightGradient;

// (x, x_scale, weight, weight_scale, start, x_columns, x_column_scale, source, kept, kept_scale), those after start may
// be none -> y
class ScaledGroupedLinear final : public Op {
 public:
  std::string_view name() const override { return "scaled_grouped_linear"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  Attributes default_attributes() const override { return GroupedLinearAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type y = product_type(inputs, attributes, false, name());
    if (const Type* source = given(inputs, ScaledGroupedLinearIn::source)) {
      const Type wanted{DType::kBf16, required(inputs, ScaledGroupedLinearIn::weight, name()).shape};
      expect(*source == wanted, name(),
             text_of("the weight is quantized from ", to_text(*source), "; expected ", to_text(wanted)));
    }
    return {y};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return scaled_grouped_linear_product_cost(inputs, outputs, attributes, name());
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy) return;
    const Tensor start = builder.input(ScaledGroupedLinearIn::start);
    const bool trains = builder.needs(ScaledGroupedLinearIn::source);
    if (!trains && !builder.needs(ScaledGroupedLinearIn::x)) return;
    const std::int64_t experts = node.attributes.as<GroupedLinearAttributes>().experts;
    const QuantizedRows quantized = trains ? quantize_experts(dy, start, {.experts = experts}) : quantize(dy, {});
    if (trains) {
      std::vector<Tensor> inputs{quantized.columns,
                                 quantized.column_scale,
                                 builder.input(ScaledGroupedLinearIn::x_columns),
                                 builder.input(ScaledGroupedLinearIn::x_column_scale),
                                 start,
                                 builder.accumulator(ScaledGroupedLinearIn::source)};
      if (const Tensor flag = builder.accumulated(ScaledGroupedLinearIn::source)) inputs.push_back(flag);
      builder.set_accumulator(ScaledGroupedLinearIn::source,
                              builder.program().append(kScaledGroupedWeightGradient, node.attributes, inputs)[0]);
    }
    if (builder.needs(ScaledGroupedLinearIn::x)) {
      QuantizedWeight weight{builder.input(ScaledGroupedLinearIn::kept),
                             builder.input(ScaledGroupedLinearIn::kept_scale)};
      if (!weight.weight) weight = quantize_weight(builder.input(ScaledGroupedLinearIn::source)).plain;
      builder.add(ScaledGroupedLinearIn::x,
                  builder.program().append1(kScaledGroupedLinearInputGradient, node.attributes,
                                            {quantized.rows, quantized.row_scale, weight.weight, weight.scale, start}));
    }
  }
};

const ScaledGroupedLinear kScaledGroupedLinear;

}  // namespace

Tensor scaled_grouped_linear(const QuantizedRows& x, const QuantizedWeight& weight, Tensor start,
                             const GroupedLinearAttributes& attributes, const ScaledGroupedSources& sources) {
  return x.rows.program().append1(kScaledGroupedLinear, attributes,
                                  {x.rows, x.row_scale, weight.weight, weight.scale, start, x.columns, x.column_scale,
                                   sources.weight, sources.kept.weight, sources.kept.scale});
}

void register_scaled_grouped_linear(OpRegistry& registry) {
  registry.add(kScaledGroupedLinear);
  registry.add(kScaledGroupedLinearInputGradient);
  registry.add(kScaledGroupedWeightGradient);
}

}  // namespace hone
