#include "program/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "program/input_layout.h"
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

// Returns [nodes], the bytes of the blocks that are alive at each node.
std::vector<std::size_t> bytes_alive(const std::vector<Block>& blocks, std::size_t nodes) {
  std::vector<std::size_t> begun(nodes, 0);
  std::vector<std::size_t> ended(nodes, 0);  // after the node
  for (const Block& block : blocks) {
    begun[block.first] += block.bytes;
    ended[block.last] += block.bytes;
  }
  std::size_t alive = 0;
  for (std::size_t node = 0; node < nodes; ++node) {
    alive += begun[node];
    begun[node] = alive;
    alive -= ended[node];
  }
  return begun;
}

std::size_t largest(const std::vector<std::size_t>& bytes) {
  return bytes.empty() ? 0 : *std::ranges::max_element(bytes);
}

// Blocks of the arena, and where they come from.
struct Activations {
  std::vector<Block> blocks;
  std::vector<std::size_t> block_of;  // [values], index into blocks; kNoOffset if the value has none
};
struct Workspaces {
  std::vector<Block> blocks;
  std::vector<std::size_t> nodes;  // [blocks], index of the node
};

// Returns the lifetimes of activations: one block for each storage, extended over the uses of all its aliases. Using a
// tensor also uses the value that holds its count. Outputs live until the last node.
Activations find_activations(const Program& program) {
  const std::vector<Value>& values = program.values();
  const std::vector<Node>& nodes = program.nodes();
  Activations result;
  result.block_of.assign(values.size(), kNoOffset);
  const auto touch = [&](ValueId id, std::size_t node) {
    if (id == kNoValue) return;
    const auto storage = static_cast<std::size_t>(program.storage_of(id));
    if (values[storage].role != Role::kActivation) return;
    std::size_t& index = result.block_of[storage];
    if (index == kNoOffset) {
      index = result.blocks.size();
      result.blocks.push_back({align_up(values[storage].type.bytes()), node, node});
    }
    Block& block = result.blocks[index];
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
  return result;
}

// Returns the workspaces of the nodes' kernels. Each is alive at its own node only.
Workspaces find_workspaces(const Program& program, DeviceKind device) {
  const std::vector<Node>& nodes = program.nodes();
  Workspaces result;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (node.op->is_view()) continue;
    const Kernel& kernel = kernel_registry().get_for_planning(node.op->name(), device);
    if (!kernel.workspace) continue;
    std::vector<Type> outputs;
    outputs.reserve(node.outputs.size());
    for (const ValueId id : node.outputs) outputs.push_back(program.value(id).type);
    const std::size_t bytes = align_up(kernel.workspace(program.types_of(node.inputs), outputs, node.attributes));
    if (bytes == 0) continue;
    result.blocks.push_back({bytes, i, i});
    result.nodes.push_back(i);
  }
  return result;
}

}  // namespace

MemoryPlan plan_memory(const Program& program, DeviceKind device) {
  const Activations activations = find_activations(program);
  const Workspaces workspaces = find_workspaces(program, device);
  MemoryPlan plan;
  plan.value_offset.assign(program.values().size(), kNoOffset);
  plan.workspace_offset.assign(program.nodes().size(), kNoOffset);
  plan.workspace_bytes.assign(program.nodes().size(), 0);

  // Place both kinds together and copy the offsets back to values and nodes.
  std::vector<Block> all = activations.blocks;
  all.insert(all.end(), workspaces.blocks.begin(), workspaces.blocks.end());
  plan.arena = place(all);
  for (std::size_t id = 0; id < activations.block_of.size(); ++id) {
    const std::size_t block = activations.block_of[id];
    if (block != kNoOffset) plan.value_offset[id] = all[block].offset;
  }
  for (std::size_t i = 0; i < workspaces.blocks.size(); ++i) {
    const Block& block = all[activations.blocks.size() + i];
    plan.workspace_offset[workspaces.nodes[i]] = block.offset;
    plan.workspace_bytes[workspaces.nodes[i]] = block.bytes;
    plan.peak_workspace = std::max(plan.peak_workspace, block.bytes);
  }
  plan.peak_activations = largest(bytes_alive(activations.blocks, program.nodes().size()));

  // Inputs and counts are outside of the arena, because the host writes them before the run.
  plan.inputs = InputLayout(program).bytes();
  return plan;
}

std::vector<std::size_t> activation_bytes(const Program& program) {
  return bytes_alive(find_activations(program).blocks, program.nodes().size());
}

}  // namespace hone
