#include "ops/policy_term/policy_term.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"

namespace hone {
namespace {

// (dterm, logp, old_logp or none, ref_logp or none, advantages) -> dlogp
class PolicyTermBackward final : public Op {
 public:
  std::string_view name() const override { return "policy_term_backward"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  Attributes default_attributes() const override { return PolicyTermAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    return {required(inputs, PolicyTermBackwardIn::logp, name())};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 40.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
};

const PolicyTermBackward kPolicyTermBackward;

// (logp, old_logp or none, ref_logp or none, advantages) -> (term, kl, clipped)
class PolicyTermOp final : public Op {
 public:
  std::string_view name() const override { return "policy_term"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return PolicyTermAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& logp = required(inputs, PolicyTermIn::logp, name());
    expect(logp.shape.size() == 1 && logp.dtype == accumulator_of(logp.dtype), name(),
           text_of("logp is ", to_text(logp), "; expected f32[rows]"));
    (void)required(inputs, PolicyTermIn::advantages, name());
    for (const std::size_t i : {PolicyTermIn::old_logp, PolicyTermIn::ref_logp, PolicyTermIn::advantages}) {
      const std::optional<Type>& input = inputs[i];
      expect(!input || *input == logp, name(),
             text_of("logp is ", to_text(logp), ", but input ", i, " is ", input ? to_text(*input) : ""));
    }
    const auto& options = attributes.as<PolicyTermAttributes>();
    expect(options.kind == "clip" || options.kind == "cispo", name(),
           text_of("the kind is ", options.kind, "; expected clip or cispo"));
    expect(options.kind != "cispo" || options.delta == 0, name(), "delta must be 0 if the kind is cispo");
    expect(options.beta == 0 || inputs[PolicyTermIn::ref_logp], name(),
           text_of("beta is ", options.beta, ", but ref_logp is missing"));
    return std::vector<Type>(3, logp);
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 40.0 * static_cast<double>(outputs[PolicyTermOut::term].elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dterm = builder.output_gradient(PolicyTermOut::term);
    if (!dterm || !builder.needs(PolicyTermIn::logp)) return;
    const std::vector<Tensor> inputs{dterm, builder.input(PolicyTermIn::logp), builder.input(PolicyTermIn::old_logp),
                                     builder.input(PolicyTermIn::ref_logp), builder.input(PolicyTermIn::advantages)};
    builder.add(PolicyTermIn::logp, builder.program().append(kPolicyTermBackward, node.attributes, inputs)[0]);
  }
};

const PolicyTermOp kPolicyTerm;

}  // namespace

PolicyTerm policy_term(Tensor logp, Tensor old_logp, Tensor ref_logp, Tensor advantages,
                       const PolicyTermAttributes& attributes) {
  const std::vector<Tensor> inputs{logp, old_logp, ref_logp, advantages};
  const std::vector<Tensor> outputs = logp.program().append(kPolicyTerm, attributes, inputs);
  return {outputs[PolicyTermOut::term], outputs[PolicyTermOut::kl], outputs[PolicyTermOut::clipped]};
}

void register_policy_term(OpRegistry& registry) {
  registry.add(kPolicyTerm);
  registry.add(kPolicyTermBackward);
}

}  // namespace hone
