#include "passes/sum_gradients.h"

#include <algorithm>
#include <map>
#include <vector>

#include "ops/shards/shards.h"
#include "passes/gradient.h"
#include "passes/layer_runs.h"

namespace hone {
namespace {

// A gradient, and the last node that reads or updates it with the value that it then has.
struct CompletedGradient {
  ValueId gradient = kNoValue;
  ValueId value = kNoValue;
  std::size_t node = 0;
};

std::vector<CompletedGradient> completed_gradients(const Program& program) {
  std::vector<CompletedGradient> completed;
  for (std::size_t n = 0; n < program.nodes().size(); ++n) {
    for (const ValueId id : program.nodes()[n].outputs) {
      const ValueId root = program.storage_of(id);
      if (program.value(root).role != Role::kGradient || program.value(root).name == kAccumulatedFlag) continue;
      const auto found = std::ranges::find(completed, root, &CompletedGradient::gradient);
      if (found == completed.end()) {
        completed.push_back({root, id, n});
      } else {
        found->value = id;
        found->node = n;
      }
    }
  }
  return completed;
}

// Whole gradients whose sums are under way.
struct StartedSums {
  std::vector<Tensor> gradients;
  std::int64_t slot = 0;
  ShardGroup group = ShardGroup::kData;
};

}  // namespace

Program sum_gradients(const Program& program, const ExpertGradients& experts) {
  const std::vector<std::size_t> runs = layer_runs(program);
  const std::vector<CompletedGradient> completed = completed_gradients(program);
  ProgramRewriter rewriter(program);
  std::vector<StartedSums> started;
  for (std::size_t n = 0; n < runs.size(); ++n) {
    rewriter.replay(program.nodes()[n]);
    if (n + 1 < runs.size() && runs[n + 1] == runs[n]) continue;
    std::map<ShardGroup, std::vector<Tensor>> gradients;
    for (const CompletedGradient& each : completed) {
      if (runs[each.node] != runs[n]) continue;
      const bool is_expert = experts.names.contains(program.value(each.gradient).name);
      if (is_expert && !experts.are_summed) continue;
      gradients[is_expert ? ShardGroup::kSameExperts : ShardGroup::kData].push_back(rewriter.mapped(each.value));
    }
    for (const auto& [group, of_group] : gradients) {
      const auto slot = static_cast<std::int64_t>(started.size());
      started.push_back({sum_whole(of_group, slot, group), slot, group});
    }
  }
  for (const StartedSums& each : started) (void)wait_for_sums(each.gradients, each.slot, each.group);
  return rewriter.finish();
}

}  // namespace hone
