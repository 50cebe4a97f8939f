#include "ops/scaled_linear/scaled_linear.h"

#include "core/error.h"
#include "ops/accumulated.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// Work of a product of [rows, k] by n columns that reads the first `read` inputs.
Cost scaled_linear_product_cost(InputTypes inputs, std::size_t read, std::span<const Type> outputs,
                                const Type& rows_by_k, std::int64_t n) {
  Cost cost;
  for (const std::optional<Type>& input : inputs.first(std::min(read, inputs.size()))) {
    if (input) cost.bytes_read += static_cast<double>(input->bytes());
  }
  cost.bytes_written = static_cast<double>(outputs[0].bytes());
  cost.flops = 2.0 * static_cast<double>(rows_by_k.elements()) * static_cast<double>(n);
  return cost;
}

// (dy, dy_scale, x, x_scale, dweight) -> dweight, in place; dy and x are the transposed copies [n, rows] and [k, rows],
// dy in blocks of 1 x 128 and x in blocks of 128 x 128.
class ScaledLinearWeightGradient final : public Op {
 public:
  std::string_view name() const override { return "scaled_linear_weight_gradient"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    using In = ScaledLinearWeightGradientIn;
    const Type& dy = required(inputs, In::dy, name());
    const Type& x = required(inputs, In::x, name());
    const Type& dweight = required(inputs, In::dweight, name());
    expect(dy.dtype == DType::kU8 && x.dtype == DType::kU8 && dy.shape.size() == 2 && x.shape.size() == 2 &&
               dy.shape[1] == x.shape[1] && dweight.shape == Shape{dy.shape[0], x.shape[0]} &&
               (dweight.dtype == DType::kF32 || dweight.dtype == DType::kBf16),
           name(),
           text_of("dy is ", to_text(dy), ", x ", to_text(x), ", dweight ", to_text(dweight),
                   "; expected u8 [n, rows], u8 [k, rows] and [n, k]"));
    const std::int64_t blocks = scale_blocks(dy.shape[1].size);
    expect_scale(inputs, In::dy_scale, {blocks, dy.shape[0].size}, name());
    expect_scale(inputs, In::x_scale, {scale_blocks(x.shape[0].size), weight_scale_stride(x.shape[1].size)}, name());
    expect_accumulated(inputs, In::accumulated, name());
    return {dweight};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes&) const override {
    using In = ScaledLinearWeightGradientIn;
    const Cost cost = scaled_linear_product_cost(inputs, inputs.size(), outputs, required(inputs, In::dy, name()),
                                                 outputs[0].shape[1].size);
    return first_traffic(cost, inputs, In::accumulated, outputs[0]);
  }
  std::optional<std::size_t> alias(std::size_t) const override { return ScaledLinearWeightGradientIn::dweight; }
};

const ScaledLinearWeightGradient kScaledLinearWeightGradient;

// (x, x_scale, weight, weight_scale, bias, x_columns, x_column_scale, source, turned, turned_scale), those after
// the fourth may be none -> y
class ScaledLinear final : public Op {
 public:
  std::string_view name() const override { return "scaled_linear"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  Attributes default_attributes() const override { return ScaledLinearAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    using In = ScaledLinearIn;
    const Type& x = required(inputs, In::x, name());
    const Type& weight = required(inputs, In::weight, name());
    expect(x.dtype == DType::kU8 && weight.dtype == DType::kU8 && x.shape.size() == 2 && weight.shape.size() == 2 &&
               x.shape[1] == weight.shape[1] && x.shape[1].size % kScaleBlock == 0 &&
               weight.shape[0].size % kScaleBlock == 0,
           name(),
           text_of("x is ", to_text(x), ", weight ", to_text(weight),
                   "; expected u8 [rows, k] and u8 [n, k], n and k multiples of ", kScaleBlock));
    const std::int64_t n = weight.shape[0].size;
    const std::int64_t k = weight.shape[1].size;
    expect_scale(inputs, In::x_scale, {k / kScaleBlock, x.rows()}, name());
    const bool any_rows = attributes.as<ScaledLinearAttributes>().any_rows;
    expect(any_rows || x.rows() % kQuantizedRows == 0, name(),
           text_of("x has ", x.rows(), " rows; expected a multiple of ", kQuantizedRows));
    expect_scale(inputs, In::weight_scale, {n / kScaleBlock, any_rows ? k / kScaleBlock : weight_scale_stride(k)},
                 name());
    if (const Type* bias = given(inputs, In::bias)) {
      expect(*bias == Type{DType::kBf16, {n}}, name(),
             text_of("bias is ", to_text(*bias), ", weight ", to_text(weight), "; expected bf16 [n] and [n, k]"));
    }
    if (const Type* source = given(inputs, In::source)) {
      const Type wanted{DType::kBf16, {n, k}};
      expect(*source == wanted, name(),
             text_of("the weight is quantized from ", to_text(*source), "; expected ", to_text(wanted)));
    }
    return {Type{DType::kBf16, {x.shape[0], n}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes&) const override {
    return scaled_linear_product_cost(inputs, ScaledLinearIn::x_columns, outputs,
                                      required(inputs, ScaledLinearIn::x, name()), outputs[0].shape[1].size);
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    using In = ScaledLinearIn;
    HONE_ASSERT(!node.attributes.as<ScaledLinearAttributes>().any_rows, "a product for generation has no gradient");
    const Tensor dy = builder.output_gradient(0);
    if (!dy) return;
    if (builder.needs(In::bias)) builder.set_accumulator(In::bias, column_sum(dy, builder.accumulator(In::bias)));
    const bool trains = builder.needs(In::source);
    if (!trains && !builder.needs(In::x)) return;
    const QuantizedRows quantized = quantize(dy, {.columns = trains});
    if (trains) {
      std::vector<Tensor> inputs{quantized.columns, quantized.column_scale, builder.input(In::x_columns),
                                 builder.input(In::x_column_scale), builder.accumulator(In::source)};
      if (const Tensor flag = builder.accumulated(In::source)) inputs.push_back(flag);
      builder.set_accumulator(In::source, builder.program().append(kScaledLinearWeightGradient, {}, inputs)[0]);
    }
    if (builder.needs(In::x)) {
      QuantizedWeight transposed{builder.input(In::turned), builder.input(In::turned_scale)};
      if (!transposed.weight) {
        transposed = quantize_weight(builder.input(In::source), {.plain = false, .transposed = true}).transposed;
      }
      builder.add(In::x, scaled_linear({.rows = quantized.rows, .row_scale = quantized.row_scale}, transposed, {}, {}));
    }
  }
};

const ScaledLinear kScaledLinear;

}  // namespace

void expect_scale(InputTypes inputs, std::size_t input, const Shape& shape, std::string_view op) {
  const Type& scale = required(inputs, input, op);
  const Type wanted{DType::kF32, shape};
  expect(scale == wanted, op, text_of("a scale is ", to_text(scale), "; expected ", to_text(wanted)));
}

Tensor scaled_linear(const QuantizedRows& x, const QuantizedWeight& weight, Tensor bias, Tensor source,
                     const QuantizedWeight& transposed) {
  return x.rows.program().append1(kScaledLinear, ScaledLinearAttributes{},
                                  {x.rows, x.row_scale, weight.weight, weight.scale, bias, x.columns, x.column_scale,
                                   source, transposed.weight, transposed.scale});
}

Tensor scaled_linear_of_any_rows(const QuantizedRows& x, const QuantizedWeight& weight, Tensor bias) {
  return x.rows.program().append1(kScaledLinear, ScaledLinearAttributes{.any_rows = true},
                                  {x.rows, x.row_scale, weight.weight, weight.scale, bias});
}

void register_scaled_linear(OpRegistry& registry) {
  registry.add(kScaledLinear);
  registry.add(kScaledLinearWeightGradient);
}

}  // namespace hone
