#include "passes/expert_parallel.h"

#include <map>
#include <vector>

#include "core/error.h"
#include "ops/expert_order/expert_order.h"
#include "ops/expert_ranks/expert_ranks.h"
#include "ops/grouped_linear/grouped_linear.h"

namespace hone {
namespace {

constexpr const char* kKey = "expert_parallel_size";

[[noreturn]] void refuse(int ranks, const std::string& reason) {
  throw Error(kKey, text_of("is ", ranks, ", but ", reason), text_of("--", kKey, " 1"));
}

// The exchange of the rows of one mixture layer.
struct Exchange {
  ExpertRanksAttributes attributes;
  ExpertRanksStart start;
  Tensor position;
};

class ExpertDivider {
 public:
  ExpertDivider(const Program& program, const ExpertDivision& division)
      : from_(program), division_(division), rewriter_(program, {.retype = [&](const Value& value) {
                                                         Type type = value.type;
                                                         if (is_divided(value)) type.shape.at(0).size /= division.ranks;
                                                         return type;
                                                       }}) {}

  Program run() {
    for (const Node& node : from_.nodes()) {
      rewriter_.program().set_scope(node.scope);
      rewriter_.program().set_phase(node.phase);
      if (reads_divided_weight(node)) {
        multiply(node);
      } else if (node.op->category() == OpCategory::kActivation && all_at_experts(node)) {
        map_outputs(node, *node.op, node.attributes, sent_inputs(node), exchange_of(node.inputs[0]));
      } else {
        bring_back(node);
        rewriter_.replay(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  [[nodiscard]] bool is_divided(const Value& value) const {
    return value.role == Role::kWeight && value.producer < 0 && division_.weights.contains(value.name);
  }
  // Returns the exchange by which an old value has rows at their experts; null if it has none.
  [[nodiscard]] const Exchange* exchange_of(ValueId id) const {
    const auto found = there_.find(id);
    return found == there_.end() ? nullptr : found->second.exchange;
  }

  [[nodiscard]] bool reads_divided_weight(const Node& node) const {
    for (const ValueId id : node.inputs) {
      if (id != kNoValue && is_divided(from_.value(id))) return true;
    }
    return false;
  }

  // Returns true if all operands were sent in the same exchange.
  [[nodiscard]] bool all_at_experts(const Node& node) const {
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      if (exchange_of(id) == nullptr || exchange_of(id) != exchange_of(node.inputs[0])) return false;
    }
    return true;
  }

  [[nodiscard]] std::vector<Tensor> sent_inputs(const Node& node) {
    std::vector<Tensor> inputs;
    inputs.reserve(node.inputs.size());
    for (const ValueId id : node.inputs) inputs.push_back(id == kNoValue ? Tensor() : there(id));
    return inputs;
  }

  // The rows of an old value at the rank of their expert.
  Tensor there(ValueId id) { return rewriter_.program().tensor(there_.at(id).value); }

  void map_outputs(const Node& node, const Op& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                   const Exchange* exchange) {
    const std::vector<Tensor> outputs = rewriter_.program().append(op, attributes, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) there_[node.outputs[i]] = {outputs[i].id(), exchange};
  }

  // Appends the product of the rows that this rank's experts have.
  void multiply(const Node& node) {
    if (node.op->name() != kGroupedLinear) {
      refuse(division_.ranks, text_of(node.op->name(), " (", node.scope, ") cannot be divided by experts"));
    }
    const ValueId x = node.inputs[GroupedLinearIn::x];
    const auto& whole = node.attributes.as<GroupedLinearAttributes>();
    const Exchange& exchange = exchange_at(node.inputs[GroupedLinearIn::start], whole.experts);
    if (exchange_of(x) == nullptr) {
      const Tensor sent = send_to_experts(rewriter_.mapped(x), exchange.position, exchange.start, exchange.attributes);
      there_[x] = {sent.id(), &exchange};
      is_here_.insert(x);
    }
    HONE_ASSERT(exchange_of(x) == &exchange, "rows of ", node.scope, " are in another order");
    const Tensor rows = there(x);
    // Experts have as many rows on average as without a division, of more that there is room for.
    const GroupedLinearAttributes own{.experts = whole.experts / division_.ranks,
                                      .share = whole.share * static_cast<double>(from_.value(x).type.rows()) /
                                               static_cast<double>(rows.type().rows())};
    map_outputs(node, *node.op, own, {rows, rewriter_.mapped(node.inputs[GroupedLinearIn::weight]), exchange.start.own},
                &exchange);
  }

  // Returns the exchange of rows in the order of which `start` is a part; made at its first use.
  const Exchange& exchange_at(ValueId start, std::int64_t experts) {
    const auto found = exchanges_.find(start);
    if (found != exchanges_.end()) return found->second;
    if (experts % division_.ranks != 0) {
      throw Error(kKey, text_of("is ", division_.ranks, ", which does not divide the ", experts, " experts of a layer"),
                  "a size that divides them");
    }
    const Value& value = from_.value(start);
    HONE_ASSERT(value.producer >= 0, "the order of rows is not computed");
    const Node& order = from_.nodes()[static_cast<std::size_t>(value.producer)];
    // In a tensor group the rows are those of the rank's experts.
    const bool is_part = order.op->name() == kExpertOrderPart;
    HONE_ASSERT(is_part || order.op->name() == kExpertOrder, "rows are ordered by ", order.op->name());
    static_assert(std::size_t{ExpertOrderOut::position} == std::size_t{ExpertOrderPartOut::position});
    Exchange exchange{.attributes = {.experts = experts,
                                     .ranks = division_.ranks,
                                     .count = text_of("expert_rows_", exchanges_.size()),
                                     .own_count = is_part ? order.attributes.as<ExpertPartAttributes>().count : ""},
                      .start = {},
                      .position = rewriter_.mapped(order.outputs[ExpertOrderOut::position])};
    exchange.start = exchange_starts(rewriter_.mapped(start), exchange.attributes);
    rewriter_.program().count(Count(exchange.attributes.count),
                              division_.ranks * most_rows_to_rank(exchange.position.type(), exchange.attributes),
                              exchange.start.rows);
    return exchanges_.emplace(start, std::move(exchange)).first->second;
  }

  // Sends the operands of a node that are only at the ranks of their experts back.
  void bring_back(const Node& node) {
    for (const ValueId id : node.inputs) {
      const Exchange* exchange = exchange_of(id);
      if (exchange == nullptr || !is_here_.insert(id).second) continue;
      rewriter_.map(id, return_from_experts(there(id), exchange->position, exchange->start, exchange->attributes));
    }
  }

  static constexpr std::string_view kGroupedLinear = "grouped_linear";
  static constexpr std::string_view kExpertOrder = "expert_order";
  static constexpr std::string_view kExpertOrderPart = "expert_order_part";

  // Rows at the rank of their expert.
  struct SentRows {
    ValueId value = kNoValue;  // of the new program
    const Exchange* exchange = nullptr;
  };

  const Program& from_;
  const ExpertDivision& division_;
  ProgramRewriter rewriter_;
  std::map<ValueId, Exchange> exchanges_;  // by the old start
  std::map<ValueId, SentRows> there_;      // by the old value
  std::set<ValueId> is_here_;              // those of them that this rank has for its own tokens too
};

}  // namespace

Program divide_experts(const Program& program, const ExpertDivision& division) {
  return ExpertDivider(program, division).run();
}

}  // namespace hone
