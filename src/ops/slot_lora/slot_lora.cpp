#include "ops/slot_lora/slot_lora.h"

#include "core/error.h"
#include "ops/registry.h"

namespace hone {
namespace {

class SlotLora final : public Op {
 public:
  std::string_view name() const override { return "slot_lora"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& y = required(inputs, SlotLoraIn::y, name());
    const Type& x = required(inputs, SlotLoraIn::x, name());
    const Type& slots = required(inputs, SlotLoraIn::slots, name());
    const Type& down = required(inputs, SlotLoraIn::down, name());
    const Type& up = required(inputs, SlotLoraIn::up, name());
    for (const Type* type : {&y, &x, &down, &up}) {
      expect(is_floating(type->dtype) && type->dtype == y.dtype && type->shape.size() == 2, name(),
             text_of("an operand is ", to_text(*type), "; expected two dimensions and the dtype of y"));
    }
    expect(slots.dtype == DType::kI32 && slots.shape.size() == 1 && slots.shape[0] == y.shape[0] &&
               x.shape[0] == y.shape[0],
           name(), text_of("y is ", to_text(y), ", x ", to_text(x), ", slots ", to_text(slots)));
    const std::int64_t q = up.shape[1].size;
    const std::int64_t count = q > 0 ? down.shape[0].size / q : 0;
    expect(count > 0 && down.shape[0].size == count * q && up.shape[0].size == count * y.shape[1].size &&
               down.shape[1] == x.shape[1],
           name(),
           text_of("y is ", to_text(y), ", x ", to_text(x), ", down ", to_text(down), ", up ", to_text(up),
                   "; expected [rows, n], [rows, k], [slots x q, k], [slots x n, q]"));
    return {y};
  }
  // As if every row had an adapter.
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    const Type& x = required(inputs, SlotLoraIn::x, name());
    cost.flops = 2.0 * static_cast<double>(required(inputs, SlotLoraIn::up, name()).shape[1].size) *
                 static_cast<double>(x.elements() + outputs[0].elements());
    return cost;
  }
};

const SlotLora kSlotLora;

}  // namespace

Tensor slot_lora(Tensor y, Tensor x, Tensor slots, Tensor down, Tensor up) {
  return y.program().append1(kSlotLora, {}, {y, x, slots, down, up});
}

void register_slot_lora(OpRegistry& registry) { registry.add(kSlotLora); }

}  // namespace hone
