#include "ops/repetition_penalty/repetition_penalty.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/kernel.h"

namespace hone {
namespace {

class RepetitionPenalty final : public Op {
 public:
  std::string_view name() const override { return "repetition_penalty"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& logits = required(inputs, RepetitionPenaltyIn::logits, name());
    expect(logits.shape.size() == 2 && logits.dtype == accumulator_of(logits.dtype), name(),
           text_of("logits are ", to_text(logits), "; expected f32[samples, vocab]"));
    const Dim samples = logits.shape[0];
    const auto check = [&](std::size_t index, const char* what, const Type& wanted) {
      expect(required(inputs, index, name()) == wanted, name(),
             text_of(what, " are ", to_text(required(inputs, index, name())), "; expected ", to_text(wanted)));
    };
    check(RepetitionPenaltyIn::penalties, "penalties", {logits.dtype, {samples}});
    check(RepetitionPenaltyIn::offsets, "offsets", {DType::kI32, {samples.size + 1}});
    const Type& ids = required(inputs, RepetitionPenaltyIn::ids, name());
    expect(ids.dtype == DType::kI32 && ids.shape.size() == 1, name(),
           text_of("ids are ", to_text(ids), "; expected i32[any]"));
    return {logits};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = static_cast<double>(required(inputs, RepetitionPenaltyIn::ids, name()).elements());
    return cost;
  }
};

const RepetitionPenalty kRepetitionPenalty;

}  // namespace

Tensor repetition_penalty(Tensor logits, Tensor penalties, Tensor offsets, Tensor ids) {
  return logits.program().append1(kRepetitionPenalty, {}, {logits, penalties, offsets, ids});
}

void register_repetition_penalty(OpRegistry& registry) { registry.add(kRepetitionPenalty); }

}  // namespace hone
