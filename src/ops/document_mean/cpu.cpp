#include <algorithm>

#include "core/error.h"
#include "ops/document_mean/document_mean.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void document_mean_forward(const KernelCall& call) {
  const T* x = call.in(DocumentMeanIn::x).as<T>();
  const auto* member = call.in(DocumentMeanIn::member).as<std::int32_t>();
  const TensorView& bounds = call.in(DocumentMeanIn::cu_seqlens);
  const auto* cu_seqlens = bounds.as<std::int32_t>();
  T* y = call.out(0).as<T>();
  std::fill_n(y, call.out(0).rows(), T(0));
  for_rows(
      bounds.rows() - 1, call.in(DocumentMeanIn::x).rows() / std::max<std::int64_t>(bounds.rows() - 1, 1),
      [&](std::int64_t d) {
        const std::int64_t begin = cu_seqlens[d];
        const std::int64_t length = cu_seqlens[d + 1] - begin;
        HONE_ASSERT(begin >= 0 && length >= 0 && begin + length <= call.in(DocumentMeanIn::x).rows(), "document ", d,
                    " is [", begin, ", ", begin + length, "), outside ", call.in(DocumentMeanIn::x).rows(), " tokens");
        const auto members =
            std::count_if(member + begin, member + begin + length, [](std::int32_t m) { return m >= 0; });
        if (members == 0) return;
        const auto sum = lane_sum<double>(
            length, [&](std::int64_t i) { return member[begin + i] >= 0 ? static_cast<double>(x[begin + i]) : 0.0; });
        const T mean = static_cast<T>(sum / static_cast<double>(members));
        for (std::int64_t i = begin; i < begin + length; ++i) {
          if (member[i] >= 0) y[i] = mean;
        }
      });
  zero_tail(call.out(0));
}

}  // namespace

void register_document_mean_cpu(KernelRegistry& registry) {
  registry.add("document_mean", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  call.in(DocumentMeanIn::x).dtype() == DType::kF64 ? document_mean_forward<double>(call)
                                                                    : document_mean_forward<float>(call);
                },
                {}});
}

}  // namespace hone
