#include "ops/expert_load/expert_load.h"

#include "core/error.h"
#include "ops/registry.h"
#include "ops/router/router.h"

namespace hone {
namespace {

// (expert, sums) -> sums, in place
class ExpertLoad final : public Op {
 public:
  std::string_view name() const override { return "expert_load"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& expert = required(inputs, ExpertLoadIn::expert, name());
    const Type& sums = required(inputs, ExpertLoadIn::sums, name());
    expect(expert.dtype == DType::kI32 && expert.shape.size() == 2 && sums.shape.size() == 1 &&
               (sums.dtype == DType::kF32 || sums.dtype == DType::kF64) && sums.elements() <= kMostExperts,
           name(),
           text_of("expert is ", to_text(expert), ", sums ", to_text(sums),
                   "; expected i32[tokens, top_k] and f32[experts]"));
    return {sums};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return ExpertLoadIn::sums; }
};

const ExpertLoad kExpertLoad;

}  // namespace

Tensor expert_load(Tensor expert, Tensor sums) { return expert.program().append1(kExpertLoad, {}, {expert, sums}); }

void register_expert_load(OpRegistry& registry) { registry.add(kExpertLoad); }

}  // namespace hone
