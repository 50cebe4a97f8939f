#include "ops/next_in_document/next_in_document.h"

#include "core/error.h"
#include "ops/context_rows/context_rows.h"
#include "ops/registry.h"
#include "program/context_builder.h"

namespace hone {
namespace {

// (x, cu_seqlens) -> y
class NextInDocument final : public Op {
 public:
  std::string_view name() const override { return "next_in_document"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return NextInDocumentAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, NextInDocumentIn::x, name());
    const Type& cu_seqlens = required(inputs, NextInDocumentIn::cu_seqlens, name());
    expect(x.dtype == DType::kI32 && x.shape.size() == 1 && cu_seqlens.dtype == DType::kI32 &&
               cu_seqlens.shape.size() == 1 && cu_seqlens.shape[0].size > 0,
           name(),
           text_of("x is ", to_text(x), ", cu_seqlens ", to_text(cu_seqlens),
                   "; expected i32[tokens] and i32[documents + 1]"));
    return {x};
  }
  // The next token may be another rank's: all tokens are shifted.
  void divide_tokens(ContextBuilder& builder, const Node& node) const override {
    const ContextInputs& context = builder.inputs();
    const Tensor all = context_gather(builder.input(NextInDocumentIn::x), context.rows);
    const std::vector<Tensor> operands{all, context.cu_seqlens};
    builder.set_output(0, context_take(builder.append(node.attributes, operands)[0], context.tokens));
  }
};

const NextInDocument kNextInDocument;

}  // namespace

Tensor next_in_document(Tensor x, Tensor cu_seqlens, const NextInDocumentAttributes& attributes) {
  return x.program().append1(kNextInDocument, attributes, {x, cu_seqlens});
}

void register_next_in_document(OpRegistry& registry) { registry.add(kNextInDocument); }

}  // namespace hone
