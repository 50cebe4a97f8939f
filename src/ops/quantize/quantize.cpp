#include "ops/quantize/quantize.h"

#include "core/error.h"
#include "ops/quantize/views.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// (x) -> (rows, row_scale) or (rows, row_scale, columns, column_scale)
class Quantize final : public Op {
 public:
  std::string_view name() const override { return "quantize"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  Attributes default_attributes() const override { return QuantizeAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    return quantized_types(required(inputs, 0, name()), attributes.as<QuantizeAttributes>(), name());
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor gradient = builder.output_gradient(QuantizeOut::rows);
    if (gradient && builder.needs(0)) builder.add(0, gradient);
  }
};

// (weight) -> (weight, scale) of W or of W^T, or of both
class QuantizeWeight final : public Op {
 public:
  std::string_view name() const override { return "quantize_weight"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  Attributes default_attributes() const override { return QuantizeWeightAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& weight = required(inputs, 0, name());
    expect(weight.dtype == DType::kBf16 && weight.shape.size() == 2 && weight.shape[0].size % kScaleBlock == 0 &&
               weight.shape[1].size % kScaleBlock == 0,
           name(), text_of("the weight is ", to_text(weight), "; expected bf16 [n, k], multiples of ", kScaleBlock));
    const auto& forms = attributes.as<QuantizeWeightAttributes>();
    expect(forms.plain || forms.transposed, name(), "neither the weight nor its transposed copy is requested");
    std::vector<Type> types;
    const auto add = [&](std::int64_t rows, std::int64_t columns) {
      types.push_back({DType::kU8, {rows, columns}});
      types.push_back({DType::kF32, {rows / kScaleBlock, weight_scale_stride(columns)}});
    };
    if (forms.plain) add(weight.shape[0].size, weight.shape[1].size);
    if (forms.transposed) add(weight.shape[1].size, weight.shape[0].size);
    return types;
  }
};

const Quantize kQuantize;
const QuantizeWeight kQuantizeWeight;

// (weight, the outputs of quantize_weight) -> these outputs, in place
class QuantizeWeightInto final : public Op {
 public:
  std::string_view name() const override { return "quantize_weight_into"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  Attributes default_attributes() const override { return QuantizeWeightAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const std::vector<Type> types = kQuantizeWeight.infer(inputs.first(1), attributes);
    for (std::size_t i = 0; i < types.size(); ++i) {
      const Type& held = required(inputs, i + 1, name());
      expect(held == types[i], name(),
             text_of("output ", i, " is held as ", to_text(held), "; expected ", to_text(types[i])));
    }
    return types;
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return kQuantizeWeight.cost(inputs.first(1), outputs, attributes);
  }
  std::optional<std::size_t> alias(std::size_t output) const override { return output + 1; }
};

const QuantizeWeightInto kQuantizeWeightInto;

}  // namespace

std::vector<Type> quantized_types(const Type& x, const QuantizeAttributes& attributes, std::string_view op) {
  const bool fits = attributes.any_rows ? !attributes.columns : x.rows() % kQuantizedRows == 0;
  expect(x.dtype == DType::kBf16 && x.shape.size() == 2 && fits && x.shape[1].size % kScaleBlock == 0, op,
         text_of("x is ", to_text(x), "; expected bf16 [rows, k], rows a multiple of ", kQuantizedRows, " and k of ",
                 kScaleBlock));
  const std::int64_t rows = x.rows();
  const std::int64_t k = x.shape[1].size;
  std::vector<Type> types{{DType::kU8, x.shape}, {DType::kF32, {k / kScaleBlock, rows}}};
  if (attributes.columns) {
    types.push_back({DType::kU8, {k, rows}});
    types.push_back({DType::kF32, attributes.blocks ? Shape{k / kScaleBlock, weight_scale_stride(rows)}
                                                    : Shape{scale_blocks(rows), k}});
  }
  return types;
}

QuantizedViews quantized_views(const KernelCall& call, bool blocks) {
  const TensorView& rows = call.out(QuantizeOut::rows);
  QuantizedViews views{.rows = rows.as<std::uint8_t>(),
                       .row_scale = call.out(QuantizeOut::row_scale).as<float>(),
                       .capacity = rows.capacity(),
                       .k = rows.row_size()};
  if (call.outputs.size() > QuantizeOut::columns) {
    views.columns = call.out(QuantizeOut::columns).as<std::uint8_t>();
    const TensorView& scale = call.out(QuantizeOut::column_scale);
    views.column_scale = scale.as<float>();
    if (blocks) views.column_scale_stride = scale.row_size();
  }
  return views;
}

QuantizedViews quantized_views(const KernelCall& call) {
  return quantized_views(call, call.attributes_as<QuantizeAttributes>().blocks);
}

QuantizedRows quantized_rows(std::span<const Tensor> outputs) {
  QuantizedRows result{.rows = outputs[QuantizeOut::rows], .row_scale = outputs[QuantizeOut::row_scale]};
  if (outputs.size() > QuantizeOut::columns) {
    result.columns = outputs[QuantizeOut::columns];
    result.column_scale = outputs[QuantizeOut::column_scale];
  }
  return result;
}

QuantizedRows quantize(Tensor x, const QuantizeAttributes& attributes) {
  return quantized_rows(x.program().append(kQuantize, attributes, {&x, 1}));
}

QuantizedWeights quantize_weight(Tensor weight, const QuantizeWeightAttributes& attributes) {
  const std::vector<Tensor> outputs = weight.program().append(kQuantizeWeight, attributes, {&weight, 1});
  const QuantizedWeight first{outputs[QuantizeWeightOut::weight], outputs[QuantizeWeightOut::scale]};
  if (!attributes.transposed) return {.plain = first, .transposed = {}};
  if (!attributes.plain) return {.plain = {}, .transposed = first};
  return {.plain = first, .transposed = {outputs[QuantizeWeightOut::other], outputs[QuantizeWeightOut::other_scale]}};
}

void quantize_weight_into(Tensor weight, const QuantizedWeights& held) {
  std::vector<Tensor> inputs{weight};
  for (const QuantizedWeight& form : {held.plain, held.transposed}) {
    if (form.weight) inputs.insert(inputs.end(), {form.weight, form.scale});
  }
  (void)weight.program().append(
      kQuantizeWeightInto,
      QuantizeWeightAttributes{.plain = held.plain.weight.valid(), .transposed = held.transposed.weight.valid()},
      inputs);
}

void register_quantize(OpRegistry& registry) {
  registry.add(kQuantize);
  registry.add(kQuantizeWeight);
  registry.add(kQuantizeWeightInto);
}

}  // namespace hone
