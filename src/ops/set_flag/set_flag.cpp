#include "ops/set_flag/set_flag.h"

#include "core/error.h"
#include "ops/registry.h"

namespace hone {
namespace {

// flag -> flag, in place
class SetFlag final : public Op {
 public:
  std::string_view name() const override { return "set_flag"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& flag = required(inputs, 0, name());
    expect(flag == Type{DType::kF32, {1}}, name(), text_of("the flag is ", to_text(flag), "; expected f32[1]"));
    return {flag};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return 0; }
};

const SetFlag kSetFlag;

}  // namespace

Tensor set_flag(Tensor flag) { return flag.program().append1(kSetFlag, {}, {flag}); }

void register_set_flag(OpRegistry& registry) { registry.add(kSetFlag); }

}  // namespace hone
