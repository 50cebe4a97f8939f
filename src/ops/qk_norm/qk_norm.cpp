#include "ops/qk_norm/qk_norm.h"

#include "core/error.h"
#include "ops/qk_norm/parts.h"
#include "ops/ranks/ranks.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// (dy, qkv, q_weight, k_weight, rstd) -> dqkv
class QkNormInputGradient final : public Op {
 public:
  std::string_view name() const override { return "qk_norm_input_gradient"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  Attributes default_attributes() const override { return QkNormAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<QkNormAttributes>();
    expect_sizes(name(), {a.heads, a.kv_heads, a.head_dim});
    return {required(inputs, QkNormInputGradientIn::qkv, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 8.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
};

// (dy, qkv, rstd, dweight) -> dweight, in place.
class QkNormWeightGradient final : public Op {
 public:
  std::string_view name() const override { return "qk_norm_weight_gradient"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  Attributes default_attributes() const override { return QkNormWeightAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<QkNormWeightAttributes>();
    expect_sizes(name(), {a.first_head, a.heads});
    return {required(inputs, QkNormWeightGradientIn::dweight, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    const std::int64_t heads = attributes.as<QkNormWeightAttributes>().heads;
    const Type& dy = required(inputs, QkNormWeightGradientIn::dy, name());
    const double elements = static_cast<double>(dy.rows() * heads * outputs[0].elements());
    return {.flops = 3.0 * elements,
            .bytes_read = 2.0 * elements * static_cast<double>(size_of(dy.dtype)),
            .bytes_written = static_cast<double>(outputs[0].bytes())};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return QkNormWeightGradientIn::dweight; }
};

const QkNormInputGradient kQkNormInputGradient;
const QkNormWeightGradient kQkNormWeightGradient;

// (qkv, q_weight, k_weight) -> (y, rstd [rows, heads + kv_heads])
class QkNorm final : public Op {
 public:
  std::string_view name() const override { return "qk_norm"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return QkNormAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& qkv = required(inputs, QkNormIn::qkv, name());
    const Type& q_weight = required(inputs, QkNormIn::q_weight, name());
    const Type& k_weight = required(inputs, QkNormIn::k_weight, name());
    const auto& a = attributes.as<QkNormAttributes>();
    expect_sizes(name(), {a.heads, a.kv_heads, a.head_dim});
    expect(qkv.shape.size() == 2 && qkv.shape[1].size == (a.heads + 2 * a.kv_heads) * a.head_dim, name(),
           text_of("qkv is ", to_text(qkv), "; it does not fit ", a.heads, " query and ", a.kv_heads,
                   " key heads of head_dim ", a.head_dim));
    expect(q_weight == k_weight && q_weight.dtype == qkv.dtype && q_weight.shape == Shape{a.head_dim}, name(),
           text_of("q_weight and k_weight are ", to_text(q_weight), " and ", to_text(k_weight),
                   "; they do not fit head_dim ", a.head_dim, " and qkv ", to_text(qkv)));
    return {qkv, Type{accumulator_of(qkv.dtype), {qkv.shape[0], a.heads + a.kv_heads}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 4.0 * static_cast<double>(outputs[QkNormOut::y].elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(QkNormOut::y);
    if (!dy) return;
    Program& program = builder.program();
    const auto& a = node.attributes.as<QkNormAttributes>();
    const auto add_weight_gradient = [&](std::size_t weight, const QkNormWeightAttributes& heads) {
      if (!builder.needs(weight)) return;
      builder.set_accumulator(weight, program.append1(kQkNormWeightGradient, heads,
                                                      {dy, builder.input(QkNormIn::qkv),
                                                       builder.output(QkNormOut::rstd), builder.accumulator(weight)}));
    };
    add_weight_gradient(QkNormIn::q_weight, {0, a.heads});
    add_weight_gradient(QkNormIn::k_weight, {a.heads, a.kv_heads});
    if (!builder.needs(QkNormIn::qkv)) return;
    builder.add(QkNormIn::qkv, program.append1(kQkNormInputGradient, a,
                                               {dy, builder.input(QkNormIn::qkv), builder.input(QkNormIn::q_weight),
                                                builder.input(QkNormIn::k_weight), builder.output(QkNormOut::rstd)}));
  }
  // Each rank normalizes its heads; the gradients of the weights, which all heads share, are sums over the ranks.
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (builder.division(QkNormIn::qkv) == kWhole) return Op::shard(builder, node);
    QkNormAttributes own = node.attributes.as<QkNormAttributes>();
    own.heads /= builder.ranks();
    own.kv_heads /= builder.ranks();
    const std::vector<Tensor> inputs{builder.input(QkNormIn::qkv), builder.entered(QkNormIn::q_weight),
                                     builder.entered(QkNormIn::k_weight)};
    const std::vector<Tensor> outputs = builder.append(own, inputs);
    builder.set_output(QkNormOut::y, outputs[QkNormOut::y], kDividedColumns);
    builder.set_output(QkNormOut::rstd, outputs[QkNormOut::rstd], kDividedColumns);
  }
};

const QkNorm kQkNorm;

}  // namespace

Tensor qk_norm(Tensor qkv, Tensor q_weight, Tensor k_weight, const QkNormAttributes& attributes) {
  const std::vector<Tensor> inputs{qkv, q_weight, k_weight};
  return qkv.program().append(kQkNorm, attributes, inputs)[0];
}

void register_qk_norm(OpRegistry& registry) {
  registry.add(kQkNorm);
  registry.add(kQkNormInputGradient);
  registry.add(kQkNormWeightGradient);
}

}  // namespace hone
