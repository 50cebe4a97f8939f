#include "ops/router/router.h"

#include <array>

#include "core/error.h"
#include "ops/expert_load/expert_load.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

void expect_router_logits(std::string_view op, const Type& logits, const RouterAttributes& a) {
  expect_sizes(op, {a.top_k, a.groups, a.top_groups, a.group_depth});
  expect((logits.dtype == DType::kF32 || logits.dtype == DType::kF64) && logits.shape.size() == 2, op,
         text_of("logits are ", to_text(logits), "; expected f32[tokens, experts]"));
  const std::int64_t experts = logits.shape[1].size;
  expect(experts <= kMostExperts, op, text_of(experts, " experts; expected up to ", kMostExperts));
  expect(a.groups > 0 && experts > 0 && experts % a.groups == 0, op,
         text_of(experts, " experts do not divide into ", a.groups, " groups"));
  const std::int64_t size = experts / a.groups;
  expect(a.top_groups > 0 && a.top_groups <= a.groups, op,
         text_of(a.top_groups, " of ", a.groups, " groups; expected 1 to ", a.groups));
  expect(a.top_k > 0 && a.top_k <= a.top_groups * size, op,
         text_of("top_k is ", a.top_k, "; expected 1 to the ", a.top_groups * size, " experts of ", a.top_groups,
                 " groups"));
  expect(a.group_depth > 0 && a.group_depth <= size, op,
         text_of("group_depth is ", a.group_depth, "; expected 1 to the ", size, " experts of a group"));
}

// (dweight, logits, expert) -> dlogits
class RouterBackward final : public Op {
 public:
  std::string_view name() const override { return "router_backward"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  Attributes default_attributes() const override { return RouterAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& logits = required(inputs, RouterBackwardIn::logits, name());
    const auto& a = attributes.as<RouterAttributes>();
    expect_router_logits(name(), logits, a);
    const Shape chosen{logits.shape[0], a.top_k};
    const Type& dweight = required(inputs, RouterBackwardIn::dweight, name());
    const Type& expert = required(inputs, RouterBackwardIn::expert, name());
    expect(dweight == Type{logits.dtype, chosen} && expert == Type{DType::kI32, chosen}, name(),
           text_of("logits are ", to_text(logits), ", dweight ", to_text(dweight), ", expert ", to_text(expert)));
    return {logits};
  }
};

const RouterBackward kRouterBackward;

// (logits, bias or none) -> expert, weight
class Router final : public Op {
 public:
  std::string_view name() const override { return "router"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return RouterAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& logits = required(inputs, RouterIn::logits, name());
    const auto& a = attributes.as<RouterAttributes>();
    expect_router_logits(name(), logits, a);
    if (const Type* bias = given(inputs, RouterIn::bias)) {
      expect(bias->dtype == logits.dtype && bias->shape == Shape{logits.shape[1]}, name(),
             text_of("logits are ", to_text(logits), ", bias ", to_text(*bias), "; expected one number an expert"));
    }
    const Shape chosen{logits.shape[0], a.top_k};
    return {Type{DType::kI32, chosen}, Type{logits.dtype, chosen}};
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dweight = builder.output_gradient(RouterOut::weight);
    if (builder.needs(RouterIn::bias)) {
      builder.set_accumulator(RouterIn::bias,
                              expert_load(builder.output(RouterOut::expert), builder.accumulator(RouterIn::bias)));
    }
    if (!dweight || !builder.needs(RouterIn::logits)) return;
    builder.add(RouterIn::logits, builder.program().append1(
                                      kRouterBackward, node.attributes,
                                      {dweight, builder.input(RouterIn::logits), builder.output(RouterOut::expert)}));
  }
};

const Router kRouter;

}  // namespace

Routing router(Tensor logits, Tensor bias, const RouterAttributes& attributes) {
  const std::array<Tensor, 2> inputs{logits, bias};
  const std::vector<Tensor> outputs = logits.program().append(kRouter, attributes, inputs);
  return {outputs[RouterOut::expert], outputs[RouterOut::weight]};
}

void register_router(OpRegistry& registry) {
  registry.add(kRouter);
  registry.add(kRouterBackward);
}

}  // namespace hone
