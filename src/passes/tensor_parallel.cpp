#include "passes/tensor_parallel.h"

#include <map>
#include <vector>

#include "core/error.h"
#include "ops/rank_rows/rank_rows.h"
#include "ops/ranks/ranks.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

class TensorDivider final : public ShardBuilder {
 public:
  TensorDivider(const Program& program, const TensorDivision& division)
      : from_(program),
        division_(division),
        rewriter_(program, {.retype =
                                [&](const Value& value) {
                                  Type type = value.type;
                                  const std::int64_t dimension = dimension_of(value);
                                  if (dimension != kWhole)
                                    type.shape.at(static_cast<std::size_t>(dimension)).size /= division.ranks;
                                  return type;
                                }}),
        divisions_(program.values().size(), kWhole),
        gathered_(program.values().size(), false),
        by_rows_(program.values().size(), false) {
    for (std::size_t i = 0; i < divisions_.size(); ++i) divisions_[i] = dimension_of(program.values()[i]);
  }

  Program run() {
    for (const Node& node : from_.nodes()) {
      node_ = &node;
      rewriter_.program().set_scope(node.scope);
      rewriter_.program().set_phase(node.phase);
      node.op->shard(*this, node);
    }
    for (const Output& output : from_.outputs()) {
      HONE_ASSERT(divisions_[static_cast<std::size_t>(output.value)] == kWhole, "the output ", output.name,
                  " is divided");
      if (const auto found = addends_.find(output.value); found != addends_.end()) add_up(output.value, found->second);
      if (by_rows_[static_cast<std::size_t>(output.value)]) rewriter_.map(output.value, whole_of(output.value));
    }
    return rewriter_.finish();
  }

  int ranks() const override { return division_.ranks; }
  int rank() const override { return division_.rank; }
  Tensor input(std::size_t index) override { return whole_of(added(index)); }
  Tensor entered(std::size_t index) override {
    const ValueId id = added(index);
    HONE_ASSERT(division(index) == kWhole, "a divided operand of ", node_->op->name(), " enters");
    const Tensor operand = rewriter_.mapped(id);
    const auto [found, is_new] = entered_.try_emplace(operand.id(), kNoValue);
    if (is_new) {
      const bool by_rows = by_rows_[static_cast<std::size_t>(id)];
      found->second = (by_rows ? gathered(id, true) : enter_ranks(operand)).id();
    }
    return rewriter_.program().tensor(found->second);
  }
  Tensor addend(std::size_t index) override {
    const auto found = addends_.find(operand(index));
    return found != addends_.end() ? rewriter_.program().tensor(found->second) : Tensor();
  }
  std::int64_t division(std::size_t index) const override {
    const ValueId id = operand(index);
    return id == kNoValue ? kWhole : divisions_[static_cast<std::size_t>(id)];
  }
  bool is_gathered(std::size_t index) const override {
    const ValueId id = operand(index);
    return id != kNoValue && gathered_[static_cast<std::size_t>(id)];
  }
  std::vector<Tensor> append(const Attributes& attributes) override {
    std::vector<Tensor> inputs;
    inputs.reserve(node_->inputs.size());
    for (std::size_t i = 0; i < node_->inputs.size(); ++i) inputs.push_back(input(i));
    return append(attributes, inputs);
  }
  std::vector<Tensor> append(const Attributes& attributes, std::span<const Tensor> inputs) override {
    return rewriter_.program().append(*node_->op, attributes, inputs);
  }
  void set_output(std::size_t index, Tensor part, std::int64_t division) override {
    const ValueId id = node_->outputs.at(index);
    rewriter_.map(id, part);
    divisions_[static_cast<std::size_t>(id)] = division;
  }
  void set_addend(std::size_t index, Tensor addend) override { addends_[node_->outputs.at(index)] = addend.id(); }
  void set_sum(std::size_t index, Tensor addend, Tensor bias) override {
    const ValueId id = node_->outputs.at(index);
    if (!divides_rows(id)) return set_output(index, sum_ranks(addend, bias), kWhole);
    HONE_ASSERT(!bias || bias.value().role == Role::kWeight, "a bias of ", node_->op->name(), " is no weight");
    set_rows(index, sum_rank_rows(addend, division_.ranks, bias ? enter_ranks(bias) : bias));
  }
  void set_gathered_output(std::size_t index, Tensor whole) override {
    set_output(index, whole, kWhole);
    gathered_[static_cast<std::size_t>(node_->outputs.at(index))] = true;
  }
  bool has_rows(std::size_t index) const override {
    const ValueId id = operand(index);
    return id != kNoValue && (by_rows_[static_cast<std::size_t>(id)] || (addends_.contains(id) && divides_rows(id)));
  }
  Tensor rows(std::size_t index) override {
    const ValueId id = added(index);
    if (id == kNoValue || by_rows_[static_cast<std::size_t>(id)]) return rewriter_.mapped(id);
    if (from_.value(id).role == Role::kWeight) return entered(index);
    HONE_ASSERT(divides_rows(id) && division(index) == kWhole, "an operand of ", node_->op->name(), " has no rows");
    const auto [found, is_new] = taken_.try_emplace(id, kNoValue);
    if (is_new) found->second = take_rank_rows(rewriter_.mapped(id), division_.ranks).id();
    return rewriter_.program().tensor(found->second);
  }
  void set_rows(std::size_t index, Tensor rows) override {
    set_output(index, rows, kWhole);
    by_rows_[static_cast<std::size_t>(node_->outputs.at(index))] = true;
  }

 private:
  // Returns an operand of the node; kNoValue if it is missing.
  [[nodiscard]] ValueId operand(std::size_t index) const {
    return index < node_->inputs.size() ? node_->inputs[index] : kNoValue;
  }
  // Returns an operand whose addends, if it has any, have been added up.
  ValueId added(std::size_t index) {
    const ValueId id = operand(index);
    if (const auto found = addends_.find(id); found != addends_.end()) add_up(id, found->second);
    return id;
  }
  // Returns true if ranks may have their rows of an old value.
  [[nodiscard]] bool divides_rows(ValueId id) const {
    const Shape& shape = from_.value(id).type.shape;
    return division_.rows && !shape.empty() && shape[0].count == Count::tokens && shape[0].factor == 1;
  }
  // Returns an old value of which all ranks have all, or their part; rows of it are gathered.
  Tensor whole_of(ValueId id) {
    const Tensor mapped = rewriter_.mapped(id);
    if (id == kNoValue || !by_rows_[static_cast<std::size_t>(id)]) return mapped;
    const auto [found, is_new] = whole_.try_emplace(id, kNoValue);
    if (is_new) found->second = gathered(id, false).id();
    return rewriter_.program().tensor(found->second);
  }
  Tensor gathered(ValueId id, bool entered) {
    return gather_rank_rows(rewriter_.mapped(id),
                            {.ranks = division_.ranks, .capacity = from_.value(id).type.rows(), .entered = entered});
  }
  // Appends the sum over the ranks of an old value, where its addends are computed in the layers of the program.
  void add_up(ValueId id, ValueId addend) {
    const Node& made = from_.nodes()[static_cast<std::size_t>(from_.value(id).producer)];
    Program& program = rewriter_.program();
    program.set_scope(made.scope);
    program.set_phase(made.phase);
    const bool by_rows = divides_rows(id);
    const Tensor sum = program.tensor(addend);
    rewriter_.map(id, by_rows ? sum_rank_rows(sum, division_.ranks) : sum_ranks(sum));
    by_rows_[static_cast<std::size_t>(id)] = by_rows;
    addends_.erase(id);
    program.set_scope(node_->scope);
    program.set_phase(node_->phase);
  }
  [[nodiscard]] std::int64_t dimension_of(const Value& value) const {
    if (value.role != Role::kWeight && value.role != Role::kState) return kWhole;
    const TensorDivision::Dimensions& of = value.role == Role::kWeight ? division_.weights : division_.states;
    const auto found = of.find(value.name);
    return found != of.end() ? found->second : kWhole;
  }

  const Program& from_;
  const TensorDivision& division_;
  ProgramRewriter rewriter_;
  std::vector<std::int64_t> divisions_;  // [values of the old program]
  std::map<ValueId, ValueId> addends_;   // of old values that are not added up yet
  std::map<ValueId, ValueId> entered_;   // by the new value
  std::vector<bool> gathered_;           // [values of the old program] ShardBuilder::is_gathered()
  std::vector<bool> by_rows_;            // [values of the old program] this rank has its rows
  std::map<ValueId, ValueId> whole_;     // of old values by rows: what has been gathered of them
  std::map<ValueId, ValueId> taken_;     // of whole old values: this rank's rows
  const Node* node_ = nullptr;           // the node that is being divided
};

}  // namespace

Program divide_over_ranks(const Program& program, const TensorDivision& division) {
  return TensorDivider(program, division).run();
}

}  // namespace hone
