#include "program/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "program/kernel.h"

namespace hone {
namespace {

// Range of the arena that is alive from node `first` to node `last`, inclusive.
struct Block {
  std::size_t bytes = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  std::size_t offset = 0;
};

bool overlap_in_time(const Block& a, const Block& b) { return a.first <= b.last && b.first <= a.last; }

// Sets the offsets of the blocks and returns the size of the arena. Blocks are placed by decreasing size (ties: in
// their order), each at the lowest offset that does not overlap a placed block whose life intersects its own.
std::size_t place(std::vector<Block>& blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<std::size_t> placed;  // indices of the placed blocks, sorted by offset
  std::size_t end = 0;
  for (const std::size_t index : order) {
    Block& block = blocks[index];
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const Block& neighbour = blocks[other];
      if (!overlap_in_time(block, neighbour)) continue;
      if (offset + block.bytes <= neighbour.offset) break;
      offset = std::max(offset, neighbour.offset + neighbour.bytes);
    }
    block.offset = offset;
    end = std::max(end, offset + block.bytes);
    const auto at = std::upper_bound(placed.begin(), placed.end(), offset, [&](std::size_t value, std::size_t other) {
      return value < blocks[other].offset;
    });
    placed.insert(at, index);
  }
  return end;
}

std::size_t peak_alive(const std::vector<Block>& blocks, std::size_t nodes) {
  std::size_t peak = 0;
  for (std::size_t node = 0; node < nodes; ++node) {
    std::size_t alive = 0;
    for (const Block& block : blocks) {
      if (block.first <= node && node <= block.last) alive += block.bytes;
    }
    peak = std::max(peak, alive);
  }
  return peak;
}

}  // namespace

MemoryPlan plan_memory(const Program& program, DeviceKind device) {
  const std::vector<Value>& values = program.values();
  const std::vector<Node>& nodes = program.nodes();
  MemoryPlan plan;
  plan.value_offset.assign(values.size(), kNoOffset);
  plan.workspace_offset.assign(nodes.size(), kNoOffset);
  plan.workspace_bytes.assign(nodes.size(), 0);

  // Lifetimes of activations: one block for each storage, extended over the uses of all its aliases. Using a tensor
  // also uses the value that holds its count.
  std::vector<Block> activations;
  std::vector<std::size_t> block_of(values.size(), kNoOffset);  // [values], index into activations
  const auto touch = [&](ValueId id, std::size_t node) {
    if (id == kNoValue) return;
    const auto storage = static_cast<std::size_t>(program.storage_of(id));
    if (values[storage].role != Role::activation) return;
    if (block_of[storage] == kNoOffset) {
      block_of[storage] = activations.size();
      activations.push_back({align_up(values[storage].type.bytes()), node, node});
    }
    Block& block = activations[block_of[storage]];
    block.last = std::max(block.last, node);
  };
  const auto use = [&](ValueId id, std::size_t node) {
    if (id == kNoValue) return;
    touch(id, node);
    touch(program.count_source(values[static_cast<std::size_t>(id)].type), node);
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const ValueId id : nodes[i].inputs) use(id, i);
    for (const ValueId id : nodes[i].outputs) use(id, i);
  }
  for (const Output& output : program.outputs()) {
    if (!nodes.empty()) touch(output.value, nodes.size() - 1);
  }

  // Workspaces: each is alive at its own node only.
  std::vector<Block> workspaces;
  std::vector<std::size_t> workspace_node;  // [workspaces], index of the node
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (node.op->is_view()) continue;
    const Kernel& kernel = kernel_registry().get_for_planning(node.op->name(), device);
    if (!kernel.workspace) continue;
    std::vector<Type> outputs;
    outputs.reserve(node.outputs.size());
    for (const ValueId id : node.outputs) outputs.push_back(program.value(id).type);
    plan.workspace_bytes[i] = align_up(kernel.workspace(program.types_of(node.inputs), outputs, node.attributes));
    if (plan.workspace_bytes[i] == 0) continue;
    workspaces.push_back({plan.workspace_bytes[i], i, i});
    workspace_node.push_back(i);
  }

  // Place both kinds together and copy the offsets back to values and nodes.
  std::vector<Block> all = activations;
  all.insert(all.end(), workspaces.begin(), workspaces.end());
  plan.arena = place(all);
  for (std::size_t id = 0; id < values.size(); ++id) {
    if (block_of[id] != kNoOffset) plan.value_offset[id] = all[block_of[id]].offset;
  }
  for (std::size_t i = 0; i < workspaces.size(); ++i) {
    plan.workspace_offset[workspace_node[i]] = all[activations.size() + i].offset;
  }
  for (const Value& value : values) {
    if (value.role == Role::input) plan.inputs += align_up(value.type.bytes());
  }
  plan.inputs += align_up(std::max<std::size_t>(program.counts().size(), 1) * sizeof(std::int64_t));
  plan.peak_activations = peak_alive(activations, nodes.size());
  for (const std::size_t bytes : plan.workspace_bytes) plan.peak_workspace = std::max(plan.peak_workspace, bytes);
  return plan;
}

}  // namespace hone
