#include "ops/cast/cast.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

class Cast final : public Op {
 public:
  std::string_view name() const override { return "cast"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return CastAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, 0, name());
    const DType dtype = dtype_from_name(attributes.as<CastAttributes>().dtype);
    expect(is_floating(x.dtype) && is_floating(dtype), name(),
           text_of("from ", to_text(x), " to ", name_of(dtype), "; expected floating types"));
    return {Type{dtype, x.shape}};
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (dy && builder.needs(0)) builder.add(0, cast(dy, builder.input(0).dtype()));
  }
};

const Cast kCast;

}  // namespace

Tensor cast(Tensor x, DType dtype) {
  return x.program().append1(kCast, CastAttributes{.dtype = std::string(name_of(dtype))}, {x});
}

void register_cast(OpRegistry& registry) { registry.add(kCast); }

}  // namespace hone
