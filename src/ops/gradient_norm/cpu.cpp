#include <algorithm>
#include <cmath>

#include "ops/gradient_norm/groups.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

// Writes the sums of squares of a tensor's blocks.
template <class T>
void sum_blocks(const TensorView& gradient, double* sums) {
  const T* values = gradient.as<T>();
  const std::int64_t elements = gradient.rows() * gradient.row_size();
  parallel_for(norm_blocks(elements), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const T* first = values + block * kNormBlock;
      sums[block] = lane_sum<double>(std::min(kNormBlock, elements - block * kNormBlock), [&](std::int64_t i) {
        const auto value = static_cast<double>(widen(first[i]));
        return value * value;
      });
    }
  });
}

double added(std::span<const double> sums) {
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

// Sums the blocks of whole gradients, tensor by tensor.
double sum_whole(const KernelCall& call, std::span<double> sums) {
  double total = 0;
  for (const TensorView& gradient : call.inputs) {
    for_floating(gradient.dtype(), [&]<class T>() { sum_blocks<T>(gradient, sums.data()); });
    const auto blocks = static_cast<std::size_t>(norm_blocks(gradient.rows() * gradient.row_size()));
    total += added(sums.first(blocks));
  }
  return total;
}

// Sums the blocks of all ranks in the same order.
double sum_divided(const KernelCall& call, std::span<double> sums, const GradientNormAttributes& division) {
  const std::vector<std::int64_t> firsts = block_numbers(division.firsts);
  const NormGroups groups(division);
  std::ranges::fill(sums, 0.0);
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (!groups.counts(i)) continue;
    double* const own = sums.data() + firsts[i];
    for_floating(call.in(i).dtype(), [&]<class T>() { sum_blocks<T>(call.in(i), own); });
  }
  groups.add_up(call.workspace.data(), sums.size());
  double total = 0;
  std::size_t at = 0;
  for (const std::int64_t blocks : block_numbers(division.blocks)) {
    total += added(sums.subspan(at, static_cast<std::size_t>(blocks)));
    at += static_cast<std::size_t>(blocks);
  }
  return total;
}

void gradient_norm_forward(const KernelCall& call) {
  const auto& division = call.attributes_as<GradientNormAttributes>();
  const std::span sums(reinterpret_cast<double*>(call.workspace.data()), call.workspace.size() / sizeof(double));
  const double total = division.blocks.empty() ? sum_whole(call, sums)
                                               : sum_divided(call, sums.first(divided_blocks(division)), division);
  for_floating(call.out(0).dtype(), [&]<class T>() {
    *call.out(0).as<T>() = static_cast<T>(static_cast<Accumulator<T>>(std::sqrt(total)));
  });
}

std::size_t gradient_norm_workspace(InputTypes inputs, std::span<const Type>, const Attributes& attributes) {
  std::size_t blocks = std::max<std::size_t>(divided_blocks(attributes.as<GradientNormAttributes>()), 1);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    blocks = std::max(blocks, static_cast<std::size_t>(norm_blocks(required(inputs, i, "gradient_norm").elements())));
  }
  return blocks * sizeof(double);
}

}  // namespace

void register_gradient_norm_cpu(KernelRegistry& registry) {
  registry.add("gradient_norm", DeviceKind::kCpu, {gradient_norm_forward, gradient_norm_workspace});
}

}  // namespace hone
