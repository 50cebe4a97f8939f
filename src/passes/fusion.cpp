#include "passes/fusion.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "passes/layer.h"

namespace hone {
namespace {

struct Match {
  const Op* op = nullptr;
  Fusion fusion;
};

// Whether a fusion takes nodes that nothing took before, all of one layer. A value that crosses from layer to layer is
// kept by recomputation; fused with what the next layer makes of it, both would be kept.
bool fits(const Program& program, const Fusion& fusion, const std::vector<bool>& taken) {
  const std::string_view layer = layer_of(program.nodes()[fusion.nodes.front()].scope);
  return std::all_of(fusion.nodes.begin(), fusion.nodes.end(),
                     [&](std::size_t node) { return !taken[node] && layer_of(program.nodes()[node].scope) == layer; });
}

std::optional<Match> match_at(const Program& program, std::size_t first, const std::vector<bool>& taken) {
  for (const std::string& name : op_registry().names()) {
    const Op& op = op_registry().get(name);
    std::optional<Fusion> fusion = op.fuse(program, first);
    if (fusion && fits(program, *fusion, taken)) return Match{&op, std::move(*fusion)};
  }
  return std::nullopt;
}

}  // namespace

Program fuse_forward(const Program& program) {
  ProgramRewriter rewriter(program);
  std::vector<bool> taken(program.nodes().size(), false);
  for (std::size_t i = 0; i < program.nodes().size(); ++i) {
    if (taken[i]) continue;
    const auto match = match_at(program, i, taken);
    if (!match) {
      rewriter.replay(program.nodes()[i]);
      continue;
    }
    std::vector<Tensor> inputs;
    for (const ValueId id : match->fusion.inputs) inputs.push_back(rewriter.mapped(id));
    rewriter.program().set_scope(program.nodes()[i].scope);
    rewriter.program().set_phase(program.nodes()[i].phase);
    const std::vector<Tensor> outputs = rewriter.program().append(*match->op, match->fusion.attributes, inputs);
    for (const auto& [old, output] : match->fusion.outputs) rewriter.map(old, outputs.at(output));
    for (const std::size_t node : match->fusion.nodes) taken[node] = true;
  }
  return rewriter.finish();
}

}  // namespace hone
