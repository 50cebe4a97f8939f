#include "ops/paged_attention/forward.cuh"

namespace hone {

void attend_to_fp8_pages(const KernelCall& call) {
  const auto& a = call.attributes_as<PagedAttentionAttributes>();
  const Fp8PagedKeys keys{paged_keys<std::uint8_t>(call, a), call.in(PagedAttentionIn::k_scales).as<std::uint8_t>(),
                          call.in(PagedAttentionIn::v_scales).as<std::uint8_t>(),
                          static_cast<std::int32_t>(a.kv_heads)};
  if (call.in(PagedAttentionIn::qkv).dtype() == DType::kBf16) {
    forward_over_pages<__nv_bfloat16>(call, a, WidenablePages{keys});
  } else {
    forward_over_pages<float>(call, a, keys);
  }
}

}  // namespace hone
