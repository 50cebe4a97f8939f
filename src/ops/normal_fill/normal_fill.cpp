#include "ops/normal_fill/normal_fill.h"

#include "core/error.h"
#include "ops/registry.h"

namespace hone {
namespace {

// (weight) -> weight, in place.
class NormalFill final : public Op {
 public:
  std::string_view name() const override { return "normal_fill"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return NormalFillAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& weight = required(inputs, 0, name());
    const auto& a = attributes.as<NormalFillAttributes>();
    expect(is_floating(weight.dtype) && a.first >= 0 && a.count >= 0 && a.first <= weight.elements() - a.count, name(),
           text_of(to_text(weight), " has no ", a.count, " elements from element ", a.first));
    return {weight};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return 0; }
};

const NormalFill kNormalFill;

}  // namespace

Tensor normal_fill(Tensor weight, const NormalFillAttributes& attributes) {
  return weight.program().append1(kNormalFill, attributes, {weight});
}

void register_normal_fill(OpRegistry& registry) { registry.add(kNormalFill); }

}  // namespace hone
