#include "ops/expert_order/expert_order.h"

#include <array>

#include "core/error.h"
#include "ops/registry.h"

namespace hone {
namespace {

// (expert) -> position, start
class ExpertOrderOp final : public Op {
 public:
  std::string_view name() const override { return "expert_order"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return ExpertOrderAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& expert = required(inputs, 0, name());
    const std::int64_t experts = attributes.as<ExpertOrderAttributes>().experts;
    expect_sizes(name(), {experts});
    expect(expert.dtype == DType::kI32 && expert.shape.size() == 2 && experts > 0 && expert.elements() < (1LL << 31),
           name(), text_of("expert is ", to_text(expert), " of ", experts, " experts; expected i32[tokens, top_k]"));
    return {expert, Type{DType::kI32, {experts + 1}}};
  }
};

const ExpertOrderOp kForward;

}  // namespace

ExpertOrder expert_order(Tensor expert, const ExpertOrderAttributes& attributes) {
  const std::array<Tensor, 1> inputs{expert};
  const std::vector<Tensor> outputs = expert.program().append(kForward, attributes, inputs);
  return {outputs[ExpertOrderOut::position], outputs[ExpertOrderOut::start]};
}

void register_expert_order(OpRegistry& registry) { registry.add(kForward); }

}  // namespace hone
