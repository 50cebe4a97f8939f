#include "passes/stage_states.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "ops/stages/stages.h"
#include "passes/pipeline.h"

namespace hone {
namespace {

constexpr const char* kKept = "kept.";

std::size_t index_of(ValueId id) { return static_cast<std::size_t>(id); }

// A separate program of some nodes of another.
struct Excerpt {
  std::vector<bool> nodes;                      // [nodes]
  std::map<ValueId, std::string> arriving;      // values that are in states of these names when the program runs
  std::multimap<ValueId, std::string> leaving;  // values that it copies to states of these names
  std::vector<Output> outputs;
};

bool arrives(const Value& value) {
  return value.role == Role::kInput && (is_received(value.name) || is_sent_gradient(value.name));
}

void add_arriving_inputs(const Program& program, Excerpt& excerpt) {
  for (std::size_t i = 0; i < program.values().size(); ++i) {
    const Value& value = program.values()[i];
    if (arrives(value)) excerpt.arriving[static_cast<ValueId>(i)] = value.name;
  }
}

// Calls visit(value) for each value that a node reads, and each count of rows that its results have.
template <class Visit>
void for_each_read(const Program& program, const Node& node, const Visit& visit) {
  for (const ValueId id : node.inputs) {
    if (id != kNoValue) visit(id);
  }
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *ids) {
      const ValueId count = id != kNoValue ? program.count_source(program.value(id).type) : kNoValue;
      if (count != kNoValue) visit(count);
    }
  }
}

// Returns [values], true for those that the excerpt reads.
std::vector<bool> values_read(const Program& program, const Excerpt& excerpt) {
  std::vector<bool> read(program.values().size(), false);
  for (std::size_t n = 0; n < excerpt.nodes.size(); ++n) {
    if (!excerpt.nodes[n]) continue;
    for_each_read(program, program.nodes()[n], [&](ValueId id) { read[index_of(id)] = true; });
  }
  for (const auto& [id, name] : excerpt.leaving) read[index_of(id)] = true;
  for (const Output& output : excerpt.outputs) read[index_of(output.value)] = true;
  return read;
}

// Leaves out the nodes that neither what leaves nor outputs nor bound memory need.
void drop_unneeded(const Program& program, Excerpt& excerpt) {
  std::vector<bool> values(program.values().size(), false);
  for (const auto& [id, name] : excerpt.leaving) values[index_of(id)] = true;
  for (const Output& output : excerpt.outputs) values[index_of(output.value)] = true;
  for (std::size_t n = excerpt.nodes.size(); n-- > 0;) {
    if (!excerpt.nodes[n]) continue;
    const Node& node = program.nodes()[n];
    excerpt.nodes[n] = std::ranges::any_of(node.outputs, [&](ValueId id) {
      return values[index_of(id)] || (updates_in_place(node) && program.value(program.storage_of(id)).producer < 0);
    });
    if (!excerpt.nodes[n]) continue;
    for_each_read(program, node, [&](ValueId id) { values[index_of(id)] = true; });
  }
}

// Declares the counts of rows that leave the excerpt as what their states hold, because a state with such rows may not
// have a count that a node computes. Their copies follow the nodes that compute them, and so precede all such rows.
void declare_leaving_counts(const Program& program, const Excerpt& excerpt, Program& to) {
  for (const CountSpec& spec : program.counts()) {
    const auto leaving = excerpt.leaving.find(spec.source);
    if (leaving == excerpt.leaving.end()) continue;
    to.count(spec.count, spec.capacity, to.state(leaving->second, program.value(spec.source).type));
  }
}

Program write_excerpt(const Program& program, Excerpt&& excerpt) {
  drop_unneeded(program, excerpt);
  const std::vector<bool> read = values_read(program, excerpt);
  ProgramRewriter rewriter(program,
                           {.keeps = [&](ValueId id) { return read[index_of(id)] && !excerpt.arriving.contains(id); }});
  for (const auto& [id, name] : excerpt.arriving) {
    if (read[index_of(id)]) rewriter.map(id, rewriter.program().state(name, program.value(id).type));
  }
  declare_leaving_counts(program, excerpt, rewriter.program());
  const auto leave = [&](ValueId id) {
    const auto [begin, end] = excerpt.leaving.equal_range(id);
    for (auto each = begin; each != end; ++each) {
      const Tensor value = rewriter.mapped(id);
      const ValueId declared = rewriter.program().find(Role::kState, each->second);
      (void)keep(value, declared != kNoValue ? rewriter.program().tensor(declared)
                                             : rewriter.program().state(each->second, value.type()));
    }
  };
  for (std::size_t n = 0; n < excerpt.nodes.size(); ++n) {
    const Node& node = program.nodes()[n];
    if (!excerpt.nodes[n]) continue;
    for (const ValueId id : node.outputs) {
      HONE_ASSERT(!updates_in_place(node) || !arrives(program.value(program.storage_of(id))),
                  "a value that another stage has sent is overwritten");
    }
    rewriter.replay(node);
    for (const ValueId id : node.outputs) leave(id);
  }
  for (auto each = excerpt.leaving.begin(); each != excerpt.leaving.end();
       each = excerpt.leaving.upper_bound(each->first)) {
    if (program.value(each->first).producer < 0) leave(each->first);  // received and sent on
  }
  for (const Output& output : excerpt.outputs) rewriter.program().output(output.name, rewriter.mapped(output.value));
  return rewriter.take();
}

// Returns the outputs that are not exchanged with other stages.
std::vector<Output> own_outputs(const Program& program) {
  std::vector<Output> own;
  for (const Output& output : program.outputs()) {
    if (!is_sent(output.name) && !is_received_gradient(output.name)) own.push_back(output);
  }
  return own;
}

template <class Leaves>
void add_leaving(const Program& program, const Leaves& leaves, Excerpt& excerpt) {
  for (const Output& output : program.outputs()) {
    if (leaves(output.name)) excerpt.leaving.emplace(output.value, output.name);
  }
}

// Marks the nodes that launch nothing and give `id` from other values, and adds to `kept` the values that must be there
// for it.
void find_kept(const Program& program, ValueId id, std::vector<bool>& nodes, std::set<ValueId>& kept) {
  const Value& value = program.value(id);
  if (value.producer < 0) return;
  const auto n = static_cast<std::size_t>(value.producer);
  if (nodes[n]) return;
  const Node& node = program.nodes()[n];
  if (!node.op->is_view()) {
    kept.insert(id);
    return;
  }
  nodes[n] = true;
  for_each_read(program, node, [&](ValueId input) { find_kept(program, input, nodes, kept); });
}

}  // namespace

Program exchange_by_states(const Program& program, StageSends sends) {
  Excerpt excerpt{.nodes = std::vector<bool>(program.nodes().size(), true), .outputs = own_outputs(program)};
  add_arriving_inputs(program, excerpt);
  add_leaving(program, sends == StageSends::kValues ? is_sent : is_received_gradient, excerpt);
  return write_excerpt(program, std::move(excerpt));
}

SplitStage split_passes(const Program& program) {
  const auto is_backward = [](const Node& node) { return node.phase == Phase::kBackward; };
  const auto first = std::ranges::find_if(program.nodes(), is_backward);
  HONE_ASSERT(std::all_of(first, program.nodes().end(), is_backward), "a forward node follows the backward pass");
  const auto begin = static_cast<std::size_t>(first - program.nodes().begin());
  Excerpt backward{.nodes = std::vector<bool>(program.nodes().size(), false), .outputs = own_outputs(program)};
  for (std::size_t n = begin; n < backward.nodes.size(); ++n) backward.nodes[n] = true;
  add_arriving_inputs(program, backward);
  add_leaving(program, is_received_gradient, backward);
  Excerpt forward{.nodes = std::vector<bool>(program.nodes().size(), false)};
  for (std::size_t n = 0; n < begin; ++n) forward.nodes[n] = true;
  add_arriving_inputs(program, forward);
  add_leaving(program, is_sent, forward);
  std::set<ValueId> kept;
  for (std::size_t n = begin; n < program.nodes().size(); ++n) {
    for_each_read(program, program.nodes()[n], [&](ValueId id) { find_kept(program, id, backward.nodes, kept); });
  }
  std::size_t number = 0;
  for (const ValueId id : kept) {
    const std::string name = text_of(kKept, number++);
    backward.arriving[id] = name;
    forward.leaving.emplace(id, name);
  }
  Program first_half = write_excerpt(program, std::move(forward));
  return {std::move(first_half), write_excerpt(program, std::move(backward))};
}

}  // namespace hone
