#include "ops/ranks/ranks.h"

#include "core/error.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"

namespace hone {
namespace {

// (dy, sum) -> sum, in place: the accumulated gradient of a weight plus the sum over all ranks of dy, which may be of
// the type in which gradients of the weight's type are added up.
class RanksAccumulate final : public Op {
 public:
  std::string_view name() const override { return "ranks_accumulate"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& dy = required(inputs, RanksAccumulateIn::dy, name());
    const Type& sum = required(inputs, RanksAccumulateIn::sum, name());
    expect(dy.shape == sum.shape && (dy.dtype == sum.dtype || dy.dtype == accumulator_of(sum.dtype)), name(),
           text_of("dy is ", to_text(dy), ", the sum ", to_text(sum), "; expected one type, or a wider dy"));
    return {sum};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return RanksAccumulateIn::sum; }
};

// (x, bias or none) -> y
class RanksSum final : public Op {
 public:
  std::string_view name() const override { return "ranks_sum"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  bool is_token_wise() const override { return true; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, RanksSumIn::x, name());
    expect(is_floating(x.dtype), name(), text_of("x is ", to_text(x), "; expected a floating type"));
    if (const Type* bias = given(inputs, RanksSumIn::bias)) {
      expect(x.shape.size() == 2 && *bias == Type{x.dtype, {x.shape[1]}}, name(),
             text_of("bias is ", to_text(*bias), ", x ", to_text(x), "; expected [n] and [rows, n]"));
    }
    return {x};
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy) return;
    if (builder.needs(RanksSumIn::bias)) {
      builder.set_accumulator(RanksSumIn::bias, column_sum(dy, builder.accumulator(RanksSumIn::bias)));
    }
    if (builder.needs(RanksSumIn::x)) builder.add(RanksSumIn::x, dy);
  }
};

// (x) -> y
class RanksGather final : public Op {
 public:
  std::string_view name() const override { return "ranks_gather"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return RanksGatherAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, 0, name());
    const std::int64_t ranks = attributes.as<RanksGatherAttributes>().ranks;
    expect_sizes(name(), {ranks});
    expect(x.shape.size() == 2 && ranks > 0, name(),
           text_of("x is ", to_text(x), ", ranks ", ranks, "; expected [rows, n] of at least one rank"));
    return {Type{x.dtype, {x.shape[0], x.shape[1].size * ranks}}};
  }
};

const RanksGather kRanksGather;
const RanksAccumulate kAccumulate;
const RanksSum kRanksSum;

// (x) -> x
class RanksEnter final : public Op {
 public:
  std::string_view name() const override { return "ranks_enter"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override { return {required(inputs, 0, name())}; }
  Cost cost(InputTypes, std::span<const Type>, const Attributes&) const override { return {}; }
  std::optional<std::size_t> alias(std::size_t) const override { return 0; }
  bool is_view() const override { return true; }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(0)) return;
    Program& program = builder.program();
    if (builder.input(0).value().role == Role::kWeight) {
      builder.set_accumulator(0, program.append1(kAccumulate, {}, {dy, builder.accumulator(0)}));
    } else {
      builder.add(0, program.append1(kRanksSum, {}, {dy, Tensor()}));
    }
  }
};

const RanksEnter kEnter;

}  // namespace

Tensor enter_ranks(Tensor x) { return x.program().append1(kEnter, {}, {x}); }

Tensor sum_ranks(Tensor x, Tensor bias) { return x.program().append1(kRanksSum, {}, {x, bias}); }

Tensor gather_ranks(Tensor x, std::int64_t ranks) {
  return x.program().append1(kRanksGather, RanksGatherAttributes{.ranks = ranks}, {x});
}

void register_ranks(OpRegistry& registry) {
  registry.add(kEnter);
  registry.add(kRanksSum);
  registry.add(kRanksGather);
  registry.add(kAccumulate);
}

}  // namespace hone
