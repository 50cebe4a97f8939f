#include "passes/gather_again.h"

#include <vector>

#include "ops/rank_rows/rank_rows.h"
#include "passes/layer.h"

namespace hone {

Program gather_again(const Program& program) {
  ProgramRewriter rewriter(program);
  std::vector<bool> is_kept(program.values().size(), false);  // what a forward gather of a layer has gathered
  for (const Node& node : program.nodes()) {
    if (node.phase == Phase::kForward) {
      rewriter.replay(node);
      if (gathers_rank_rows(*node.op) && is_in_layer(node.scope)) {
        is_kept[static_cast<std::size_t>(node.outputs[0])] = true;
      }
      continue;
    }
    for (const ValueId id : node.inputs) {
      if (id == kNoValue || !is_kept[static_cast<std::size_t>(id)]) continue;
      is_kept[static_cast<std::size_t>(id)] = false;
      Node gather = program.nodes()[static_cast<std::size_t>(program.value(id).producer)];
      gather.scope = node.scope;
      gather.phase = node.phase;
      rewriter.map(id, rewriter.clone(gather)[0]);
    }
    rewriter.replay(node);
  }
  return rewriter.finish();
}

}  // namespace hone
