#include "ops/guard/guard.h"

#include "core/error.h"
#include "ops/registry.h"

namespace hone {
namespace {

class Guard final : public Op {
 public:
  std::string_view name() const override { return "guard"; }
  OpCategory category() const override { return OpCategory::kOptimizer; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& values = required(inputs, GuardIn::values, name());
    const Type& bad = required(inputs, GuardIn::bad, name());
    expect(is_floating(values.dtype) && bad == Type{DType::kI32, {1}}, name(),
           text_of("values are ", to_text(values), ", bad ", to_text(bad), "; expected a floating type and i32[1]"));
    return {bad};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return GuardIn::bad; }
};

const Guard kGuard;

}  // namespace

Tensor guard(Tensor values, Tensor bad) { return values.program().append1(kGuard, {}, {values, bad}); }

void register_guard(OpRegistry& registry) { registry.add(kGuard); }

}  // namespace hone
