#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "ops/next_in_document/next_in_document.h"
#include "ops/registry.h"

namespace hone {
namespace {

void shift(const KernelCall& call) {
  const TensorView& x = call.in(NextInDocumentIn::x);
  const TensorView& bounds = call.in(NextInDocumentIn::cu_seqlens);
  const auto* cu_seqlens = bounds.as<std::int32_t>();
  const auto* from = x.as<std::int32_t>();
  auto* y = call.out(0).as<std::int32_t>();
  std::fill_n(y, call.out(0).capacity(),
              static_cast<std::int32_t>(call.attributes_as<NextInDocumentAttributes>().last));
  for (std::int64_t d = 0; d + 1 < bounds.rows(); ++d) {
    const std::int64_t begin = cu_seqlens[d];
    const std::int64_t end = cu_seqlens[d + 1];
    HONE_ASSERT(begin >= 0 && begin <= end && end <= x.rows(), "document ", d, " is [", begin, ", ", end, "), outside ",
                x.rows(), " tokens");
    if (end - begin > 1) std::copy(from + begin + 1, from + end, y + begin);
  }
}

}  // namespace

void register_next_in_document_cpu(KernelRegistry& registry) {
  registry.add("next_in_document", DeviceKind::kCpu, {shift, {}});
}

}  // namespace hone
