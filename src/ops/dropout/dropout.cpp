#include "ops/dropout/dropout.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// (x, draw) -> y. The gradient is the same dropout applied to dy.
class Dropout final : public Op {
 public:
  std::string_view name() const override { return "dropout"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return DropoutAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, DropoutIn::x, name());
    const Type& draw = required(inputs, DropoutIn::draw, name());
    const auto& a = attributes.as<DropoutAttributes>();
    expect(is_floating(x.dtype) && draw == Type{DType::kI32, {kDropoutDraw}}, name(),
           text_of("x is ", to_text(x), ", draw ", to_text(draw), "; expected a floating type and i32[4]"));
    expect(a.probability >= 0 && a.probability < 1 && a.site >= 0, name(),
           text_of("probability ", a.probability, ", site ", a.site,
                   "; expected a probability in [0, 1) and a site of at least 0"));
    expect(x.elements() / kDropoutBlock < std::numeric_limits<std::uint32_t>::max(), name(),
           text_of(to_text(x), " has more blocks of 8 elements than a 32-bit counter covers"));
    return {x};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = static_cast<double>(outputs[0].elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(DropoutIn::x)) return;
    builder.add(DropoutIn::x, builder.program().append1(*this, node.attributes, {dy, builder.input(DropoutIn::draw)}));
  }
};

const Dropout kDropout;

}  // namespace

std::uint32_t dropout_threshold(double probability) {
  return static_cast<std::uint32_t>(std::min(std::lround(probability * 65536.0), 65535L));
}

std::array<std::int32_t, kDropoutDraw> dropout_draw(std::uint64_t seed, std::int64_t step, std::int64_t micro_batch) {
  const std::uint64_t key = RandomStream(seed, "dropout").key();
  return {static_cast<std::int32_t>(key), static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(step),
          static_cast<std::int32_t>(micro_batch)};
}

Tensor dropout(Tensor x, Tensor draw, const DropoutAttributes& attributes) {
  return x.program().append1(kDropout, attributes, {x, draw});
}

void register_dropout(OpRegistry& registry) { registry.add(kDropout); }

}  // namespace hone
