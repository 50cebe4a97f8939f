#include "ops/fill/fill.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/context_builder.h"

namespace hone {
namespace {

class Fill final : public Op {
 public:
  std::string_view name() const override { return "fill"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return FillAttributes{}; }
  std::vector<Type> infer(InputTypes, const Attributes& attributes) const override {
    Type type = type_from_text(attributes.as<FillAttributes>().type);
    expect(is_floating(type.dtype), name(), text_of("the type is ", to_text(type), "; expected a floating type"));
    return {std::move(type)};
  }
  void divide_tokens(ContextBuilder& builder, const Node& node) const override {
    FillAttributes own = node.attributes.as<FillAttributes>();
    own.type = to_text(builder.divided(type_from_text(own.type)));
    divide_alike(builder, node, own);
  }
};

const Fill kFill;

}  // namespace

Tensor fill(Program& program, const Type& type, double value) {
  return program.append1(kFill, FillAttributes{.value = value, .type = to_text(type)}, {});
}

void register_fill(OpRegistry& registry) { registry.add(kFill); }

}  // namespace hone
