#include "ops/expert_ranks/expert_ranks.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "ops/expert_order/expert_order.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// Throws Error unless the ranks divide the experts.
void expect_group(std::string_view op, const ExpertRanksAttributes& a) {
  expect_sizes(op, {a.experts, a.ranks});
  expect(a.experts > 0 && a.ranks > 0 && a.experts % a.ranks == 0, op,
         text_of(a.experts, " experts of ", a.ranks, " ranks; expected a number of ranks that divides the experts"));
}

// (start) -> starts, place, own, rows
class ExpertRanksStartOp final : public Op {
 public:
  std::string_view name() const override { return "expert_ranks_start"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  Attributes default_attributes() const override { return ExpertRanksAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<ExpertRanksAttributes>();
    expect_group(name(), a);
    const Type& start = required(inputs, 0, name());
    expect(start == Type{DType::kI32, {a.experts + 1}}, name(),
           text_of("start is ", to_text(start), " of ", a.experts, " experts; expected i32[experts + 1]"));
    const std::int64_t own = a.experts / a.ranks;
    return {Type{DType::kI32, {a.ranks, a.experts + 1}}, Type{DType::kI32, {own, a.ranks}},
            Type{DType::kI32, {own + 1}}, Type{DType::kI64, {1}}};
  }
};

// (x, position, starts, place) -> y: "expert_ranks_send" and "expert_ranks_return", each the gradient of the other
class ExpertRanksMove final : public Op {
 public:
  ExpertRanksMove(std::string_view name, bool to_experts, const Op& back)
      : name_(name), to_experts_(to_experts), back_(back) {}
  std::string_view name() const override { return name_; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return ExpertRanksAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<ExpertRanksAttributes>();
    expect_group(name_, a);
    const Type& x = required(inputs, ExpertRanksSendIn::x, name_);
    const Type& position = required(inputs, ExpertRanksSendIn::position, name_);
    expect(
        is_floating(x.dtype) && x.shape.size() == 2 && position.dtype == DType::kI32 && position.shape.size() == 2,
        name_,
        text_of("x is ", to_text(x), ", position ", to_text(position), "; expected [rows, n] and i32[tokens, top_k]"));
    const Type& starts = required(inputs, ExpertRanksSendIn::starts, name_);
    const Type& place = required(inputs, ExpertRanksSendIn::place, name_);
    expect(starts == Type{DType::kI32, {a.ranks, a.experts + 1}} &&
               place == Type{DType::kI32, {a.experts / a.ranks, a.ranks}},
           name_, text_of("starts is ", to_text(starts), ", place ", to_text(place), " of ", a.experts, " experts"));
    const Dim& tokens = position.shape[0];
    const std::int64_t top_k = position.shape[1].size;
    const Dim here = a.own_count.empty() ? Dim(tokens.size * top_k, tokens.count, tokens.factor * top_k)
                                         : rows_of_part(position, {.own = a.experts, .count = a.own_count});
    const Dim there(a.ranks * most_rows_to_rank(position, a), Count(a.count));
    expect(x.shape[0] == (to_experts_ ? here : there), name_,
           text_of("x is ", to_text(x), ", position ", to_text(position), " of ", a.ranks, " ranks"));
    return {Type{x.dtype, {to_experts_ ? there : here, x.shape[1]}}};
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(ExpertRanksSendIn::x)) return;
    builder.add(ExpertRanksSendIn::x, builder.program().append1(back_, node.attributes,
                                                                {dy, builder.input(ExpertRanksSendIn::position),
                                                                 builder.input(ExpertRanksSendIn::starts),
                                                                 builder.input(ExpertRanksSendIn::place)}));
  }

 private:
  std::string_view name_;
  bool to_experts_;
  const Op& back_;
};

const ExpertRanksStartOp kStart;
extern const ExpertRanksMove kReturn;
const ExpertRanksMove kSend("expert_ranks_send", true, kReturn);
const ExpertRanksMove kReturn("expert_ranks_return", false, kSend);

}  // namespace

std::int64_t most_rows_to_rank(const Type& position, const ExpertRanksAttributes& attributes) {
  return position.shape[0].size * std::min(position.shape[1].size, attributes.experts / attributes.ranks);
}

ExpertRanksStart exchange_starts(Tensor start, const ExpertRanksAttributes& attributes) {
  const std::array<Tensor, 1> inputs{start};
  const std::vector<Tensor> outputs = start.program().append(kStart, attributes, inputs);
  return {outputs[ExpertRanksStartOut::starts], outputs[ExpertRanksStartOut::place], outputs[ExpertRanksStartOut::own],
          outputs[ExpertRanksStartOut::rows]};
}

Tensor send_to_experts(Tensor x, Tensor position, const ExpertRanksStart& start,
                       const ExpertRanksAttributes& attributes) {
  return x.program().append1(kSend, attributes, {x, position, start.starts, start.place});
}

Tensor return_from_experts(Tensor y, Tensor position, const ExpertRanksStart& start,
                           const ExpertRanksAttributes& attributes) {
  return y.program().append1(kReturn, attributes, {y, position, start.starts, start.place});
}

void register_expert_ranks(OpRegistry& registry) {
  registry.add(kStart);
  registry.add(kSend);
  registry.add(kReturn);
}

}  // namespace hone
