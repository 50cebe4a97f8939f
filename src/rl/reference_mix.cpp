#include "rl/reference_mix.h"

#include <cstddef>
#include <vector>

#include "core/parallel.h"
#include "program/kernel.h"

namespace hone {

void mix_reference(const TensorStore& policy, TensorStore& reference, double alpha) {
  const auto a = static_cast<float>(alpha);
  for (const NamedType& tensor : reference.tensors()) {
    const std::int64_t count = tensor.type.elements();
    const std::vector<std::byte> ours = policy.download(tensor.name);
    std::vector<std::byte> theirs = reference.download(tensor.name);
    const auto mix = [&]<class T>() {
      const T* from = reinterpret_cast<const T*>(ours.data());
      T* to = reinterpret_cast<T*>(theirs.data());
      parallel_for(count, 16384, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          to[i] = static_cast<T>(a * static_cast<float>(from[i]) + (1.0f - a) * static_cast<float>(to[i]));
        }
      });
    };
    for_floating(tensor.type.dtype, mix);
    reference.upload(tensor.name, theirs);
  }
}

}  // namespace hone
