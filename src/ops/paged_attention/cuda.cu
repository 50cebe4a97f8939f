#include "ops/paged_attention/forward.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

template <class T>
void forward(const KernelCall& call) {
  const auto& a = call.attributes_as<PagedAttentionAttributes>();
  forward_over_pages<T>(call, a, paged_keys<T>(call, a));
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  if (inputs[PagedAttentionIn::qkv]->dtype != DType::kBf16) return 0;
  return paged_plan(*inputs[PagedAttentionIn::qkv], *inputs[PagedAttentionIn::k_cache],
                    *inputs[PagedAttentionIn::block_table], attributes.as<PagedAttentionAttributes>())
      .workspace_bytes;
}

void run(const KernelCall& call) {
  if (call.in(PagedAttentionIn::k_cache).dtype() == DType::kU8) return attend_to_fp8_pages(call);
  for_cuda_floating(call.in(PagedAttentionIn::qkv).dtype(), [&]<class T>() { forward<T>(call); });
}

}  // namespace

void register_paged_attention_cuda(KernelRegistry& registry) {
  registry.add("paged_attention", DeviceKind::kCuda, {run, workspace});
}

}  // namespace hone
