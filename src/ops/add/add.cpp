#include "ops/add/add.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

class Add final : public Op {
 public:
  std::string_view name() const override { return "add"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  bool is_token_wise() const override { return true; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& a = required(inputs, AddIn::a, name());
    const Type& b = required(inputs, AddIn::b, name());
    expect(a == b, name(), text_of("a and b must have one type, not ", to_text(a), " and ", to_text(b)));
    return {a};
  }
  // Two sums over the ranks are added before the ranks sum; values that are divided alike, as they are.
  void shard(ShardBuilder& builder, const Node& node) const override {
    const Tensor a = builder.addend(AddIn::a);
    const Tensor b = builder.addend(AddIn::b);
    if (a && b) return builder.set_addend(0, add(a, b));
    const std::int64_t division = builder.division(AddIn::a);
    if (division == builder.division(AddIn::b) && division != kWhole) {
      return shard_alike(builder, node.attributes, division);
    }
    if (!shard_rows(builder, node)) Op::shard(builder, node);
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy) return;
    for (const std::size_t i : {AddIn::a, AddIn::b}) {
      if (builder.needs(i)) builder.add(i, dy);
    }
  }
};

const Add kAdd;

}  // namespace

Tensor add(Tensor a, Tensor b) { return a.program().append1(kAdd, {}, {a, b}); }

void register_add(OpRegistry& registry) { registry.add(kAdd); }

}  // namespace hone
