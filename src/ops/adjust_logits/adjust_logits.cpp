#include "ops/adjust_logits/adjust_logits.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/kernel.h"

namespace hone {
namespace {

class AdjustLogits final : public Op {
 public:
  std::string_view name() const override { return "adjust_logits"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& logits = required(inputs, AdjustLogitsIn::logits, name());
    expect(logits.shape.size() == 2 && logits.dtype == accumulator_of(logits.dtype), name(),
           text_of("logits are ", to_text(logits), "; expected f32[samples, vocab]"));
    const Dim samples = logits.shape[0];
    const auto check = [&](std::size_t index, const char* what, const Type& wanted) {
      expect(required(inputs, index, name()) == wanted, name(),
             text_of(what, " are ", to_text(required(inputs, index, name())), "; expected ", to_text(wanted)));
    };
    const auto check_list = [&](std::size_t index, const char* what, DType dtype) {
      const Type& list = required(inputs, index, name());
      expect(list.dtype == dtype && list.shape.size() == 1, name(),
             text_of(what, " are ", to_text(list), "; expected ", name_of(dtype), "[any]"));
    };
    check(AdjustLogitsIn::parameters, "parameters", {logits.dtype, {samples, kAdjustmentParameters}});
    check_list(AdjustLogitsIn::sampled, "sampled tokens", DType::kI32);
    check(AdjustLogitsIn::unread, "unread tokens", {DType::kI32, {samples}});
    check(AdjustLogitsIn::offsets, "offsets", {DType::kI32, {samples.size + 1}});
    check_list(AdjustLogitsIn::ids, "ids", DType::kI32);
    const Type& ids = required(inputs, AdjustLogitsIn::ids, name());
    check(AdjustLogitsIn::occurrences, "occurrences", ids);
    check(AdjustLogitsIn::biases, "biases", {logits.dtype, ids.shape});
    check(AdjustLogitsIn::mask_rows, "mask rows", {DType::kI32, {samples}});
    const Type& masks = required(inputs, AdjustLogitsIn::masks, name());
    const std::int64_t words = mask_row_size(logits.shape[1].size);
    expect(masks.dtype == DType::kI32 && masks.shape.size() == 2 && masks.shape[1].size == words, name(),
           text_of("masks are ", to_text(masks), "; expected i32[any, ", words, "]"));
    return {logits, Type{DType::kI32, {samples}}};
  }
  // Most samples are not adjusted, so that their logits are neither read nor written.
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes&) const override {
    const Type& ids = required(inputs, AdjustLogitsIn::ids, name());
    Cost cost;
    cost.flops = 4 * static_cast<double>(ids.elements());
    cost.bytes_read = 3 * static_cast<double>(ids.bytes());
    cost.bytes_written = static_cast<double>(outputs[AdjustLogitsOut::adjusted].bytes());
    return cost;
  }
};

const AdjustLogits kAdjustLogits;

}  // namespace

AdjustedLogits adjust_logits(Tensor logits, Tensor parameters, Tensor sampled, Tensor unread, Tensor offsets,
                             Tensor ids, Tensor occurrences, Tensor biases, Tensor mask_rows, Tensor masks) {
  const std::vector<Tensor> inputs{logits, parameters,  sampled, unread,    offsets,
                                   ids,    occurrences, biases,  mask_rows, masks};
  const std::vector<Tensor> outputs = logits.program().append(kAdjustLogits, {}, inputs);
  return {outputs[AdjustLogitsOut::logits], outputs[AdjustLogitsOut::adjusted]};
}

void register_adjust_logits(OpRegistry& registry) { registry.add(kAdjustLogits); }

}  // namespace hone
