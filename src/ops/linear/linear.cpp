#include "ops/linear/linear.h"

#include "core/error.h"
#include "ops/accumulated.h"
#include "ops/ranks/ranks.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

Cost linear_product_cost(const Cost& traffic, const Type& rows_by_k, std::int64_t n) {
  Cost cost = traffic;
  cost.flops = 2.0 * static_cast<double>(rows_by_k.elements()) * static_cast<double>(n);
  return cost;
}

// (dy, weight) -> dx, of the weight's dtype.
class LinearInputGradient final : public Op {
 public:
  std::string_view name() const override { return "linear_input_gradient"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& dy = required(inputs, LinearInputGradientIn::dy, name());
    const Type& weight = required(inputs, LinearInputGradientIn::weight, name());
    expect(dy.shape.size() == 2 && weight.shape.size() == 2, name(),
           text_of("dy is ", to_text(dy), ", weight ", to_text(weight), "; expected [rows, n] and [n, k]"));
    return {Type{weight.dtype, {dy.shape[0], weight.shape[1]}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return linear_product_cost(Op::cost(inputs, outputs, attributes), outputs[0],
                               required(inputs, LinearInputGradientIn::weight, name()).shape[0].size);
  }
  // In product(), of which a rank may have rows of the first operand or columns of the second.
  void shard(ShardBuilder& builder, const Node& node) const override {
    const std::int64_t first = builder.division(LinearInputGradientIn::dy);
    const std::int64_t second = builder.division(LinearInputGradientIn::weight);
    const bool by_rows = first == kDividedRows && second == kWhole;
    const bool by_columns = first == kWhole && second == kDividedColumns;
    if (!by_rows && !by_columns) return Op::shard(builder, node);
    shard_alike(builder, node.attributes, by_rows ? kDividedRows : kDividedColumns);
  }
};

// (dy, x, dweight) -> dweight, in place.
class LinearWeightGradient final : public Op {
 public:
  std::string_view name() const override { return "linear_weight_gradient"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    expect_accumulated(inputs, LinearWeightGradientIn::accumulated, name());
    return {required(inputs, LinearWeightGradientIn::dweight, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const Cost traffic =
        first_traffic(Op::cost(inputs, outputs, attributes), inputs, LinearWeightGradientIn::accumulated, outputs[0]);
    return linear_product_cost(traffic, required(inputs, LinearWeightGradientIn::x, name()), outputs[0].shape[0].size);
  }
  std::optional<std::size_t> alias(std::size_t) const override { return LinearWeightGradientIn::dweight; }
};

// (dy, dbias) -> dbias, in place.
class LinearBiasGradient final : public Op {
 public:
  std::string_view name() const override { return "linear_bias_gradient"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    return {required(inputs, LinearBiasGradientIn::dbias, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = static_cast<double>(required(inputs, LinearBiasGradientIn::dy, name()).elements());
    return cost;
  }
  std::optional<std::size_t> alias(std::size_t) const override { return LinearBiasGradientIn::dbias; }
};

const LinearInputGradient kLinearInputGradient;
const LinearWeightGradient kLinearWeightGradient;
const LinearBiasGradient kBiasGradient;

// (x, weight, bias or none) -> y
class Linear final : public Op {
 public:
  std::string_view name() const override { return "linear"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return LinearAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, LinearIn::x, name());
    const Type& weight = required(inputs, LinearIn::weight, name());
    expect(x.shape.size() == 2 && weight.shape.size() == 2 && x.shape[1] == weight.shape[1] && x.dtype == weight.dtype,
           name(), text_of("x is ", to_text(x), ", weight ", to_text(weight), "; expected [rows, k] and [n, k]"));
    if (const Type* bias = given(inputs, LinearIn::bias)) {
      expect(bias->shape.size() == 1 && bias->shape[0] == weight.shape[0] && bias->dtype == x.dtype, name(),
             text_of("bias is ", to_text(*bias), ", weight ", to_text(weight), "; expected [n] and [n, k]"));
    }
    const bool f32_output = attributes.as<LinearAttributes>().f32_output;
    return {Type{f32_output ? accumulator_of(x.dtype) : x.dtype, {x.shape[0], weight.shape[0].size}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    return linear_product_cost(Op::cost(inputs, outputs, attributes), required(inputs, LinearIn::x, name()),
                               outputs[0].shape[1].size);
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy) return;
    Program& program = builder.program();
    if (builder.needs(LinearIn::weight)) {
      std::vector<Tensor> inputs{dy, builder.input(LinearIn::x), builder.accumulator(LinearIn::weight)};
      if (const Tensor flag = builder.accumulated(LinearIn::weight)) inputs.push_back(flag);
      builder.set_accumulator(LinearIn::weight, program.append(kLinearWeightGradient, {}, inputs)[0]);
    }
    if (builder.needs(LinearIn::bias))
      builder.set_accumulator(LinearIn::bias,
                              program.append1(kBiasGradient, {}, {dy, builder.accumulator(LinearIn::bias)}));
    if (builder.needs(LinearIn::x))
      builder.add(LinearIn::x, program.append1(kLinearInputGradient, {}, {dy, builder.input(LinearIn::weight)}));
  }
  // With rows of the weight a rank computes the same columns of y from all of x. With columns of the weight, and the
  // same columns of x, it computes an addend of y; the bias, which all ranks have, is added to the sum. With all of the
  // weight it computes its rows of y if it has its rows of x.
  void shard(ShardBuilder& builder, const Node& node) const override {
    const std::int64_t division = builder.division(LinearIn::weight);
    const bool by_rows = division == kDividedRows && builder.division(LinearIn::x) == kWhole;
    const bool by_columns = division == kDividedColumns && builder.division(LinearIn::x) == kDividedColumns &&
                            builder.division(LinearIn::bias) == kWhole;
    if (!by_rows && !by_columns) {
      if (division != kWhole || !shard_rows(builder, node)) Op::shard(builder, node);
      return;
    }
    const Tensor weight = builder.input(LinearIn::weight);
    const Tensor bias = builder.input(LinearIn::bias);
    if (by_rows) {
      const std::vector<Tensor> inputs{builder.entered(LinearIn::x), weight, bias};
      const Tensor y = builder.append(node.attributes, inputs)[0];
      // Results in f32 are logits, which a sampler needs whole.
      if (node.attributes.as<LinearAttributes>().f32_output) {
        builder.set_gathered_output(0, gather_ranks(y, builder.ranks()));
      } else {
        builder.set_output(0, y, kDividedColumns);
      }
    } else {
      const std::vector<Tensor> inputs{builder.input(LinearIn::x), weight, Tensor()};
      const Tensor addend = builder.append(node.attributes, inputs)[0];
      if (bias) {
        builder.set_sum(0, addend, bias);
      } else {
        builder.set_addend(0, addend);
      }
    }
  }
};

const Linear kLinear;

}  // namespace

Tensor linear(Tensor x, Tensor weight, Tensor bias, const LinearAttributes& attributes) {
  return x.program().append1(kLinear, attributes, {x, weight, bias});
}

Tensor product(Tensor a, Tensor b) { return a.program().append1(kLinearInputGradient, {}, {a, b}); }

Tensor transposed_product(Tensor a, Tensor b, Tensor sum) {
  return a.program().append1(kLinearWeightGradient, {}, {a, b, sum});
}

Tensor column_sum(Tensor rows, Tensor sum) { return rows.program().append1(kBiasGradient, {}, {rows, sum}); }

void register_linear(OpRegistry& registry) {
  registry.add(kLinear);
  registry.add(kLinearInputGradient);
  registry.add(kLinearWeightGradient);
  registry.add(kBiasGradient);
}

}  // namespace hone
