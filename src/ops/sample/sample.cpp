#include "ops/sample/sample.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/kernel.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

class Sample final : public Op {
 public:
  std::string_view name() const override { return "sample"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  Attributes default_attributes() const override { return SampleAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& logits = required(inputs, SampleIn::logits, name());
    expect(logits.shape.size() == 2 && logits.shape[1].size > 0 && logits.dtype == accumulator_of(logits.dtype), name(),
           text_of("logits are ", to_text(logits), "; expected f32[samples, vocab]"));
    const std::int64_t parts = attributes.as<SampleAttributes>().parts;
    expect(parts > 0 && logits.shape[1].size % parts == 0, name(),
           text_of("logits are ", to_text(logits), ", parts ", parts, "; expected a number that divides them"));
    const Dim samples = logits.shape[0];
    const auto check = [&](std::size_t index, const char* what, const Type& wanted) {
      expect(required(inputs, index, name()) == wanted, name(),
             text_of(what, " are ", to_text(required(inputs, index, name())), "; expected ", to_text(wanted)));
    };
    check(SampleIn::parameters, "parameters", {logits.dtype, {samples, kSampleParameters}});
    check(SampleIn::keys, "keys", {DType::kI64, {samples, 2}});
    if (inputs[SampleIn::penalized]) {
      check(SampleIn::penalized, "penalized logits", logits);
      check(SampleIn::penalized_rows, "penalized rows", {DType::kI32, {samples}});
    }
    return {Type{DType::kI32, {samples}}, Type{logits.dtype, {samples}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 40.0 * static_cast<double>(required(inputs, SampleIn::logits, name()).elements());
    return cost;
  }
  // All ranks draw from the logits of all ranks.
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (!builder.is_gathered(SampleIn::logits)) return Op::shard(builder, node);
    shard_alike(builder, SampleAttributes{.parts = builder.ranks()}, kWhole);
  }
};

const Sample kSample;

}  // namespace

Sampled sample(Tensor logits, Tensor parameters, Tensor keys, Tensor penalized, Tensor penalized_rows,
               const SampleAttributes& attributes) {
  const std::vector<Tensor> inputs{logits, parameters, keys, penalized, penalized_rows};
  const std::vector<Tensor> outputs = logits.program().append(kSample, attributes, inputs);
  return {outputs[SampleOut::token], outputs[SampleOut::logp]};
}

void register_sample(OpRegistry& registry) { registry.add(kSample); }

}  // namespace hone
