#include "ops/add/add.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void add_forward(const KernelCall& call) {
  const TensorView& a = call.in(AddIn::a);
  const T* as = a.as<T>();
  const T* bs = call.in(AddIn::b).as<T>();
  T* ys = call.out(0).as<T>();
  parallel_for(a.rows() * a.row_size(), 16384, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ys[i] = static_cast<T>(widen(as[i]) + widen(bs[i]));
  });
  zero_tail(call.out(0));
}

}  // namespace

void register_add_cpu(KernelRegistry& registry) {
  registry.add("add", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(AddIn::a).dtype(), [&]<class T>() { add_forward<T>(call); });
                },
                {}});
}

}  // namespace hone
