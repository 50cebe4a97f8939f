#include "program/independent_nodes.h"

#include <algorithm>
#include <set>
#include <span>

namespace hone {
namespace {

using Storages = std::set<ValueId>;

Storages storages_of(const Program& program, std::span<const ValueId> values) {
  Storages storages;
  for (const ValueId value : values) {
    if (value != kNoValue) storages.insert(program.storage_of(value));
  }
  return storages;
}

bool overlap(const Storages& a, const Storages& b) {
  return std::ranges::any_of(a, [&](ValueId value) { return b.contains(value); });
}

}  // namespace

std::size_t end_of_independent_nodes(const Program& program, std::size_t first) {
  const auto& nodes = program.nodes();
  Storages read;
  Storages written;
  std::size_t end = first;
  for (; end < nodes.size() && nodes[end].op == nodes[first].op; ++end) {
    const Storages reads = storages_of(program, nodes[end].inputs);
    const Storages writes = storages_of(program, nodes[end].outputs);
    if (overlap(reads, written) || overlap(writes, written) || overlap(writes, read)) break;
    read.insert(reads.begin(), reads.end());
    written.insert(writes.begin(), writes.end());
  }
  return end;
}

}  // namespace hone
