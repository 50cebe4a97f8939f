#include "ops/top_logprobs/top_logprobs.h"

#include "core/error.h"
#include "ops/registry.h"
#include "ops/sample/sample.h"
#include "program/kernel.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

class TopLogprobsOp final : public Op {
 public:
  std::string_view name() const override { return "top_logprobs"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  Attributes default_attributes() const override { return TopLogprobsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto [most, parts] = attributes.as<TopLogprobsAttributes>();
    const Type& logits = required(inputs, TopLogprobsIn::logits, name());
    expect(logits.shape.size() == 2 && logits.shape[1].size > 0 && logits.dtype == accumulator_of(logits.dtype), name(),
           text_of("logits are ", to_text(logits), "; expected f32[samples, vocab]"));
    expect(most > 0, name(), text_of("lists ", most, " tokens; expected at least 1"));
    expect(parts > 0 && logits.shape[1].size % parts == 0, name(),
           text_of("logits are ", to_text(logits), ", parts ", parts, "; expected a number that divides them"));
    const Dim samples = logits.shape[0];
    const auto check = [&](std::size_t index, const char* what, const Type& wanted) {
      expect(required(inputs, index, name()) == wanted, name(),
             text_of(what, " are ", to_text(required(inputs, index, name())), "; expected ", to_text(wanted)));
    };
    check(TopLogprobsIn::parameters, "parameters", {logits.dtype, {samples, kSampleParameters}});
    check(TopLogprobsIn::counts, "counts", {DType::kI32, {samples}});
    return {Type{DType::kI32, {samples, most}}, Type{logits.dtype, {samples, most}}};
  }
  // Samples that ask for nothing read nothing, and most ask for nothing.
  Cost cost(InputTypes, std::span<const Type> outputs, const Attributes&) const override {
    Cost cost;
    for (const Type& output : outputs) cost.bytes_written += static_cast<double>(output.bytes());
    return cost;
  }
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (!builder.is_gathered(TopLogprobsIn::logits)) return Op::shard(builder, node);
    auto attributes = node.attributes.as<TopLogprobsAttributes>();
    attributes.parts = builder.ranks();
    shard_alike(builder, attributes, kWhole);
  }
};

const TopLogprobsOp kTopLogprobs;

}  // namespace

TopLogprobs top_logprobs(Tensor logits, Tensor parameters, Tensor counts, const TopLogprobsAttributes& attributes) {
  const std::vector<Tensor> inputs{logits, parameters, counts};
  const std::vector<Tensor> outputs = logits.program().append(kTopLogprobs, attributes, inputs);
  return {outputs[TopLogprobsOut::ids], outputs[TopLogprobsOut::logps]};
}

void register_top_logprobs(OpRegistry& registry) { registry.add(kTopLogprobs); }

}  // namespace hone
