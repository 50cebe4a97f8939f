// Operands of attention on the CPU, of whole documents and of pieces (ops/context_attention).
#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/attention.h"
#include "ops/attention/attention.h"
#include "ops/rows.h"

namespace hone {

[[nodiscard]] inline AttentionShape attention_shape(const AttentionAttributes& a) {
  return {.num_heads = a.heads, .num_kv_heads = a.kv_heads, .head_dim = a.head_dim, .scale = a.scale};
}

[[nodiscard]] inline std::span<const std::int32_t> ids_of(const TensorView& view) {
  return {view.as<std::int32_t>(), static_cast<std::size_t>(view.elements())};
}

// Workspace of a forward pass whose first input is qkv.
[[nodiscard]] inline std::size_t attention_forward_workspace(InputTypes inputs, std::span<const Type>,
                                                             const Attributes& attributes) {
  const AttentionShape shape = attention_shape(attributes.as<AttentionAttributes>());
  std::size_t bytes = 0;
  for_floating(required(inputs, AttentionIn::qkv, "attention").dtype,
               [&]<class T>() { bytes = attention_workspace_bytes<T>(shape, thread_count()); });
  return bytes;
}

}  // namespace hone
