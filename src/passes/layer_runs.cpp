#include "passes/layer_runs.h"

#include "passes/layer.h"

namespace hone {

std::vector<std::size_t> layer_runs(const Program& program) {
  std::vector<std::size_t> runs;
  for (std::size_t n = 0; n < program.nodes().size(); ++n) {
    const Node& node = program.nodes()[n];
    if (n == 0) {
      runs.push_back(0);
      continue;
    }
    const Node& before = program.nodes()[n - 1];
    const bool same = node.phase == before.phase && layer_of(node.scope) == layer_of(before.scope);
    runs.push_back(runs.back() + (same ? 0 : 1));
  }
  return runs;
}

}  // namespace hone
