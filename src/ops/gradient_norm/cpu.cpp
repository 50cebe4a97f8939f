#include <algorithm>
#include <cmath>

#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

constexpr std::int64_t kBlock = 1 << 15;  // elements

std::int64_t blocks_of(std::int64_t elements) { return (elements + kBlock - 1) / kBlock; }

// Sum of squares of a tensor. `sums` is scratch for one number of each block.
template <class T>
double sum_of_squares(const TensorView& gradient, double* sums) {
  const T* values = gradient.as<T>();
  const std::int64_t elements = gradient.rows() * gradient.row_size();
  const std::int64_t blocks = blocks_of(elements);
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const T* first = values + block * kBlock;
      sums[block] = lane_sum<double>(std::min(kBlock, elements - block * kBlock), [&](std::int64_t i) {
        const auto value = static_cast<double>(widen(first[i]));
        return value * value;
      });
    }
  });
  double sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += sums[block];
  return sum;
}

void forward(const KernelCall& call) {
  auto* sums = reinterpret_cast<double*>(call.workspace.data());
  double sum = 0;
  for (const TensorView& gradient : call.inputs) {
    for_floating(gradient.dtype(), [&]<class T>() { sum += sum_of_squares<T>(gradient, sums); });
  }
  for_floating(call.out(0).dtype(),
               [&]<class T>() { *call.out(0).as<T>() = static_cast<T>(static_cast<Accumulator<T>>(std::sqrt(sum))); });
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  std::int64_t blocks = 1;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    blocks = std::max(blocks, blocks_of(required(inputs, i, "gradient_norm").elements()));
  }
  return static_cast<std::size_t>(blocks) * sizeof(double);
}

}  // namespace

void register_gradient_norm_cpu(KernelRegistry& registry) {
  registry.add("gradient_norm", DeviceKind::kCpu, {forward, workspace});
}

}  // namespace hone
