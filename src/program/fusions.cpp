#include "program/fusions.h"

#include <algorithm>

namespace hone {

std::optional<Fusion> fused_with_reader(const Program& program, std::size_t first, std::string_view op,
                                        std::string_view reader) {
  const std::vector<Node>& nodes = program.nodes();
  const Node& made = nodes[first];
  if (made.op->name() != op) return std::nullopt;
  const ValueId value = made.outputs[0];
  const bool is_output =
      std::ranges::any_of(program.outputs(), [&](const Output& each) { return each.value == value; });
  std::optional<std::size_t> read;
  for (std::size_t i = first + 1; i < nodes.size(); ++i) {
    if (!reads(nodes[i], value)) continue;
    if (read || nodes[i].op->name() != reader) return std::nullopt;
    read = i;
  }
  if (!read || is_output) return std::nullopt;
  const Node& node = nodes[*read];
  Fusion fusion{.nodes = {first, *read}, .inputs = made.inputs, .attributes = node.attributes, .outputs = {}};
  fusion.inputs.insert(fusion.inputs.end(), node.inputs.begin() + 1, node.inputs.end());
  for (std::size_t i = 0; i < node.outputs.size(); ++i) fusion.outputs.emplace_back(node.outputs[i], i);
  return fusion;
}

}  // namespace hone
