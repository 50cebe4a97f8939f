// Counts the hardware events of the kernels that the operations of a training step launch on a GPU.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu_counters.h"
#include "cli/bench/training_step.h"
#include "cli/profile/counters.h"

namespace hone {

// Launches of one run of a node: those from number `begin` to before number `end` of a step.
struct NodeLaunches {
  std::size_t node = 0;  // index of Timeline::nodes
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Runs a step and reports its nodes, as TrainingStep::run_observed().
using ObservedStep = std::function<void(NodeObserver&, const TrainingStep::ProgramDone&)>;
// Counts the events of a step, which is run several times. If that is refused, the report has only the reason.
[[nodiscard]] CounterReport count_launches(Device& gpu, const ObservedStep& step);

// Sums the events of launches by operation and by kernel. Launches of no node are left out of the operations.
[[nodiscard]] CounterReport launch_report(std::vector<std::string_view> names, const Timeline& timeline,
                                          std::span<const NodeLaunches> nodes, std::span<const KernelEvents> events);

// Returns the name of a kernel's function without parameters, types of results and unnamed namespaces:
// "void hone::(anonymous namespace)::copy<4>(float*)" gives "hone::copy<4>". Takes mangled names, too.
[[nodiscard]] std::string function_name(const std::string& symbol);

}  // namespace hone
