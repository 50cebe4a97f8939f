#include <array>
#include <cstring>
#include <span>
#include <string_view>

#include "ops/linear_logprobs/cpu_head.h"
#include "ops/linear_logprobs/merge_parts.h"
#include "ops/ranks/communication.h"
#include "ops/registry.h"

namespace hone {
namespace {

template <CpuHeadPasses passes, class In>
std::size_t linear_logprobs_workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  const Type& x = required(inputs, In::x, "linear_logprobs");
  const Type& weight = required(inputs, In::weight, "linear_logprobs");
  std::size_t bytes = 0;
  for_floating(x.dtype, [&]<class T>() { bytes = CpuHeadWorkspace<T>(x, weight, passes, {}).bytes(); });
  return bytes;
}

void clear_outputs(const KernelCall& call, const CpuHeadOperands& operands) {
  for (const TensorView& output : call.outputs) {
    if (output.data != operands.dweight.data) std::memset(output.data, 0, output.type->bytes());
  }
}

template <CpuHeadPasses passes, class In, class Out>
void run(const KernelCall& call) {
  CpuHeadOperands operands = head_operands<In, Out>(call, passes);
  operands.temperature = call.attributes_as<LinearLogprobsAttributes>().temperature;
  clear_outputs(call, operands);
  for_floating(operands.x.dtype(), [&]<class T>() { CpuHead<T>(operands, call.workspace).run(); });
}

// Sets what follows from a part's attributes.
void take_part(const KernelCall& call, CpuHeadOperands& operands) {
  const auto& a = call.attributes_as<LinearLogprobsPartAttributes>();
  operands.temperature = a.temperature;
  operands.first = a.first;
  operands.vocab = operands.weight.dim(0) * a.ranks;
}

void run_part_backward(const KernelCall& call) {
  CpuHeadOperands operands =
      head_operands<LinearLogprobsBackwardIn, LinearLogprobsBackwardOut>(call, CpuHeadPasses::kBackward);
  take_part(call, operands);
  clear_outputs(call, operands);
  for_floating(operands.x.dtype(), [&]<class T>() { CpuHead<T>(operands, call.workspace).run(); });
}

// Bytes of the statistics that the ranks exchange, at the end of the workspace.
std::size_t exchanged_bytes(const Type& logp, std::int64_t ranks) {
  return align_up(static_cast<std::size_t>(ranks * kPartStatistics) * logp.bytes());
}

// Merges the statistics of all ranks in the rows that have a target.
template <class A>
void merge_all(const KernelCall& call, const CpuHeadOperands& operands, const A* all, std::int64_t ranks) {
  const auto* targets = operands.targets.as<std::int32_t>();
  const std::int64_t capacity = operands.logp.capacity();
  for_rows(operands.x.rows(), 64 * ranks, [&](std::int64_t row) {
    if (targets[row] < 0) return;
    const MergedRow<A> merged = merge_parts(all, ranks, capacity, row, targets[row] / operands.weight.dim(0));
    call.out(LinearLogprobsOut::logp).as<A>()[row] = merged.logp;
    call.out(LinearLogprobsOut::entropy).as<A>()[row] = merged.entropy;
    call.out(LinearLogprobsOut::hit).as<A>()[row] = merged.hit;
    call.out(LinearLogprobsOut::lse).as<A>()[row] = merged.lse;
  });
}

void run_part(const KernelCall& call) {
  CpuHeadOperands operands = head_operands<LinearLogprobsIn, LinearLogprobsOut>(call, CpuHeadPasses::kForward);
  take_part(call, operands);
  clear_outputs(call, operands);
  // This rank's statistics are computed in their place among those of all ranks.
  const std::int64_t ranks = call.attributes_as<LinearLogprobsPartAttributes>().ranks;
  const std::size_t exchanged = exchanged_bytes(*operands.logp.type, ranks);
  const std::span<std::byte> all = call.workspace.last(exchanged);
  const std::size_t array = operands.logp.type->bytes();
  const auto own = static_cast<std::size_t>(tensor_group().rank() * kPartStatistics) * array;
  std::memset(all.data() + own, 0, kPartStatistics * array);
  operands.max = operands.lse;
  const std::array<TensorView*, kPartStatistics> statistics{&operands.logp, &operands.entropy, &operands.hit,
                                                            &operands.lse, &operands.max};
  for (std::size_t i = 0; i < statistics.size(); ++i) statistics[i]->data = all.data() + own + i * array;
  for_floating(operands.x.dtype(), [&]<class T>() {
    CpuHead<T>(operands, call.workspace.first(call.workspace.size() - exchanged)).run();
    gather_blocks(all.data(), kPartStatistics * array);
    merge_all(call, operands, reinterpret_cast<const Accumulator<T>*>(all.data()), ranks);
  });
}

std::size_t part_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
  return linear_logprobs_workspace<CpuHeadPasses::kForward, LinearLogprobsIn>(inputs, outputs, attributes) +
         exchanged_bytes(outputs[LinearLogprobsOut::logp], attributes.as<LinearLogprobsPartAttributes>().ranks);
}

template <CpuHeadPasses passes, class In, class Out>
void add_kernel(KernelRegistry& registry, std::string_view op) {
  registry.add(op, DeviceKind::kCpu, {run<passes, In, Out>, linear_logprobs_workspace<passes, In>});
}

}  // namespace

void register_linear_logprobs_cpu(KernelRegistry& registry) {
  add_kernel<CpuHeadPasses::kForward, LinearLogprobsIn, LinearLogprobsOut>(registry, "linear_logprobs");
  add_kernel<CpuHeadPasses::kBackward, LinearLogprobsBackwardIn, LinearLogprobsBackwardOut>(registry,
                                                                                            "linear_logprobs_backward");
  add_kernel<CpuHeadPasses::kJoint, LinearLogprobsJointIn, LinearLogprobsJointOut>(registry, "linear_logprobs_joint");
  registry.add("linear_logprobs_part", DeviceKind::kCpu, {run_part, part_workspace});
  registry.add("linear_logprobs_part_backward", DeviceKind::kCpu,
               {run_part_backward, linear_logprobs_workspace<CpuHeadPasses::kBackward, LinearLogprobsBackwardIn>});
}

}  // namespace hone
