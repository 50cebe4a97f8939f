#include <algorithm>
#include <array>
#include <span>

#include "core/random.h"
#include "ops/normal_fill/normal_fill.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void normal_fill_forward(const KernelCall& call) {
  using A = Accumulator<T>;
  const auto& a = call.attributes_as<NormalFillAttributes>();
  const RandomStream random = RandomStream::with_key(static_cast<std::uint64_t>(a.key));
  const auto deviation = static_cast<float>(a.deviation);
  T* values = call.out(0).as<T>() + a.first;
  parallel_for(a.count, 4096, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, 256> normals;
    while (begin < end) {
      const std::int64_t count = std::min<std::int64_t>(end - begin, std::ssize(normals));
      random.normals(static_cast<std::uint64_t>(begin), std::span(normals).first(static_cast<std::size_t>(count)));
      for (std::int64_t i = 0; i < count; ++i)
        values[begin + i] = static_cast<T>(static_cast<A>(deviation * normals[static_cast<std::size_t>(i)]));
      begin += count;
    }
  });
}

}  // namespace

void register_normal_fill_cpu(KernelRegistry& registry) {
  registry.add("normal_fill", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.out(0).dtype(), [&]<class T>() { normal_fill_forward<T>(call); });
                },
                {}});
}

}  // namespace hone
