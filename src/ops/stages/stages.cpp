#include "ops/stages/stages.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/kernel.h"

namespace hone {
namespace {

// (x, home) -> home, in place
class StagesKeep final : public Op {
 public:
  std::string_view name() const override { return "stages_keep"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, StagesKeepIn::x, name());
    const Type& home = required(inputs, StagesKeepIn::home, name());
    expect(x == home, name(), text_of("x is ", to_text(x), ", but home is ", to_text(home)));
    return {home};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return StagesKeepIn::home; }
};

// (x) -> norm
class StagesNorm final : public Op {
 public:
  std::string_view name() const override { return "stages_norm"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, 0, name());
    const bool is_norm = (x.dtype == DType::kF32 || x.dtype == DType::kF64) && x.shape == Shape{1};
    expect(is_norm, name(), text_of("x is ", to_text(x), "; expected f32[1] or f64[1]"));
    return {x};
  }
};

const StagesKeep kKeep;
const StagesNorm kStagesNorm;

}  // namespace

Tensor keep(Tensor x, Tensor home) { return x.program().append1(kKeep, {}, {x, home}); }

Tensor norm_of_stages(Tensor x) { return x.program().append1(kStagesNorm, {}, {x}); }

void register_stages(OpRegistry& registry) {
  registry.add(kKeep);
  registry.add(kStagesNorm);
}

}  // namespace hone
