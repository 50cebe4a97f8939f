#include "passes/fusion.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "passes/layer.h"
#include "program/fusions.h"

namespace hone {
namespace {

// A pattern found in the program.
struct Match {
  const Op* op = nullptr;
  Fusion fusion;
  std::vector<std::size_t> before;  // later nodes that the fused node depends on, ascending; they move in front of it
};

class Fuser {
 public:
  Fuser(const Program& program, FusionScope reach, const OpRegistry& registry)
      : program_(program),
        reach_(reach),
        fused_(registry.fused()),
        rewriter_(program),
        taken_(program.nodes().size(), false) {
    if (reach != FusionScope::kInference) {
      std::erase_if(fused_, [](const FusedOp* op) { return dynamic_cast<const InferenceFusedOp*>(op) != nullptr; });
    }
  }

  Program run() {
    for (std::size_t i = 0; i < program_.nodes().size(); ++i) {
      if (taken_[i]) continue;
      if (const auto match = match_at(i)) {
        for (const std::size_t node : match->before) replay(node);
        append(*match, program_.nodes()[i]);
      } else {
        replay(i);
      }
    }
    return rewriter_.finish();
  }

 private:
  // Returns the first pattern, in the order of fused operations, that starts at node `first` and may be applied.
  std::optional<Match> match_at(std::size_t first) const {
    for (const FusedOp* op : fused_) {
      std::optional<Fusion> fusion = op->fuse(program_, first);
      if (!fusion || !fits(*fusion)) continue;
      Match match{op, std::move(*fusion), {}};
      if (find_dependencies(match)) return match;
    }
    return std::nullopt;
  }

  // Returns true if no node of the fusion is replayed or fused yet and all are within reach of each other.
  [[nodiscard]] bool fits(const Fusion& fusion) const {
    const std::string_view layer = layer_of(program_.nodes()[fusion.nodes.front()].scope);
    return !takes_count(fusion) && std::all_of(fusion.nodes.begin(), fusion.nodes.end(), [&](std::size_t node) {
      return !taken_[node] && (reach_ != FusionScope::kLayer || layer_of(program_.nodes()[node].scope) == layer);
    });
  }

  // Returns true if the fusion would remove the value that a count is read from.
  [[nodiscard]] bool takes_count(const Fusion& fusion) const {
    return std::ranges::any_of(program_.counts(), [&](const CountSpec& spec) {
      if (spec.source == kNoValue || program_.value(spec.source).producer < 0) return false;
      const auto made = static_cast<std::size_t>(program_.value(spec.source).producer);
      return std::ranges::find(fusion.nodes, made) != fusion.nodes.end() &&
             std::ranges::none_of(fusion.outputs, [&](const auto& output) { return output.first == spec.source; });
    });
  }

  // Fills match.before. Returns false if an input depends on a node to be fused or on a later in-place update, which
  // may not be reordered.
  [[nodiscard]] bool find_dependencies(Match& match) const {
    const Fusion& fusion = match.fusion;
    std::vector<std::size_t> open;
    const auto visit = [&](ValueId id) {
      if (id == kNoValue || program_.value(id).producer < 0) return;
      const auto node = static_cast<std::size_t>(program_.value(id).producer);
      if (node >= fusion.nodes.front() && !taken_[node]) open.push_back(node);
    };
    for (const ValueId id : fusion.inputs) visit(id);
    for (const auto& [old, output] : fusion.outputs) visit(program_.count_source(program_.value(old).type));
    while (!open.empty()) {
      const std::size_t node = open.back();
      open.pop_back();
      if (std::find(fusion.nodes.begin(), fusion.nodes.end(), node) != fusion.nodes.end()) return false;
      if (updates_in_place(program_.nodes()[node])) return false;
      if (std::find(match.before.begin(), match.before.end(), node) != match.before.end()) continue;
      match.before.push_back(node);
      for (const ValueId id : program_.nodes()[node].inputs) visit(id);
      for (const ValueId id : program_.nodes()[node].outputs) visit(program_.count_source(program_.value(id).type));
    }
    std::sort(match.before.begin(), match.before.end());
    return true;
  }

  void replay(std::size_t node) {
    rewriter_.replay(program_.nodes()[node]);
    taken_[node] = true;
  }

  void append(const Match& match, const Node& first) {
    std::vector<Tensor> inputs;
    inputs.reserve(match.fusion.inputs.size());
    for (const ValueId id : match.fusion.inputs) inputs.push_back(rewriter_.mapped(id));
    rewriter_.program().set_scope(first.scope);
    rewriter_.program().set_phase(first.phase);
    const std::vector<Tensor> outputs = rewriter_.program().append(*match.op, match.fusion.attributes, inputs);
    for (const auto& [old, output] : match.fusion.outputs) rewriter_.map(old, outputs.at(output));
    for (const std::size_t node : match.fusion.nodes) taken_[node] = true;
  }

  const Program& program_;
  FusionScope reach_;
  std::vector<const FusedOp*> fused_;
  ProgramRewriter rewriter_;
  std::vector<bool> taken_;  // replayed or fused
};

}  // namespace

Program fuse(const Program& program, FusionScope reach, const OpRegistry& registry) {
  return Fuser(program, reach, registry).run();
}

}  // namespace hone
