#include <algorithm>
#include <cstring>

#include "backend/cpu/gemm.h"
#include "ops/linear/products.h"
#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/slot_lora/slot_lora.h"

namespace hone {
namespace {

constexpr std::size_t kAlignment = 64;  // bytes, of h in the workspace

// The types of one slot's matrices and of h.
struct SlotTypes {
  Type h, down, up;
};

SlotTypes slot_types(const Type& y, const Type& x, const Type& up) {
  const Dim q = up.shape[1];
  return {.h = {y.dtype, {y.shape[0], q}}, .down = {y.dtype, {q, x.shape[1]}}, .up = {y.dtype, {y.shape[1], q}}};
}

std::size_t h_bytes(const Type& h) { return (h.bytes() + kAlignment - 1) / kAlignment * kAlignment; }

// Adds the adapter of slot `slot` to `rows` rows from `first` on.
void add_run(const KernelCall& call, const SlotTypes& types, std::int64_t slot, std::int64_t first, std::int64_t rows) {
  const TensorView& x = call.in(SlotLoraIn::x);
  const TensorView& y = call.out(0);
  const std::size_t element = size_of(y.dtype());
  const auto slot_bytes = [&](const Type& type) { return static_cast<std::size_t>(slot) * type.bytes(); };
  std::byte* h = call.workspace.data();
  GemmArgs down = linear_product(*x.type, types.down, types.h);
  down.m = rows;
  down.a = x.data + static_cast<std::size_t>(first * x.row_size()) * element;
  down.b = call.in(SlotLoraIn::down).data + slot_bytes(types.down);
  down.c = h;
  down.workspace = call.workspace.subspan(h_bytes(types.h));
  gemm(down);
  GemmArgs up = linear_product(types.h, types.up, *y.type);
  up.m = rows;
  up.a = h;
  up.b = call.in(SlotLoraIn::up).data + slot_bytes(types.up);
  up.c = y.data + static_cast<std::size_t>(first * y.row_size()) * element;
  up.accumulate = true;
  up.workspace = down.workspace;
  gemm(up);
}

void slot_lora_forward(const KernelCall& call) {
  const TensorView& from = call.in(SlotLoraIn::y);
  const TensorView& y = call.out(0);
  const auto* slots = call.in(SlotLoraIn::slots).as<std::int32_t>();
  const SlotTypes types = slot_types(*from.type, *call.in(SlotLoraIn::x).type, *call.in(SlotLoraIn::up).type);
  const std::int64_t count = call.in(SlotLoraIn::up).capacity() / from.row_size();
  const std::int64_t rows = y.rows();
  std::memcpy(y.data, from.data, static_cast<std::size_t>(rows * y.row_size()) * size_of(y.dtype()));
  // The rows of a request are neighbours, so runs of equal slots are as long as chunks of prompts.
  for (std::int64_t first = 0, end = 0; first < rows; first = end) {
    const std::int32_t slot = slots[first];
    HONE_ASSERT(slot < count, "slot ", slot, " of ", count);
    for (end = first + 1; end < rows && slots[end] == slot;) ++end;
    if (slot >= 0) add_run(call, types, slot, first, end - first);
  }
  zero_tail(y);
}

std::size_t slot_lora_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  const Type& x = required(inputs, SlotLoraIn::x, "slot_lora");
  const SlotTypes types = slot_types(outputs[0], x, required(inputs, SlotLoraIn::up, "slot_lora"));
  GemmArgs up = linear_product(types.h, types.up, outputs[0]);
  up.accumulate = true;
  return h_bytes(types.h) + std::max(gemm_workspace_bytes(linear_product(x, types.down, types.h), thread_count()),
                                     gemm_workspace_bytes(up, thread_count()));
}

}  // namespace

void register_slot_lora_cpu(KernelRegistry& registry) {
  registry.add("slot_lora", DeviceKind::kCpu, {slot_lora_forward, slot_lora_workspace});
}

}  // namespace hone
