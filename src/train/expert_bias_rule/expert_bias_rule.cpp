// The update rule of the biases by which routers balance the load of their experts (ops/expert_bias). What accumulates
// in the place of a bias's gradient is the load of each expert (ops/router).
#include "ops/expert_bias/expert_bias.h"

#include "train/registry.h"

namespace hone {
namespace {

class ExpertBiasRule final : public WeightUpdateRule {
 public:
  std::vector<NamedType> states(const WeightSpec&, const Type&, const OptimizerOptions&) const override { return {}; }
  bool has_gradient() const override { return false; }
  void append(const WeightSpec& spec, const UpdatedWeight& tensors, const AdamwStep& step,
              const AdamwAttributes&) const override {
    expert_bias({tensors.weight, tensors.gradient}, step.bad, {.speed = spec.update_speed});
  }
};

const ExpertBiasRule kRule;

}  // namespace

void register_expert_bias_rule(UpdateRuleRegistry& registry) { registry.add(WeightKind::router_bias, kRule); }

}  // namespace hone
