#include "ops/document_mean/document_mean.h"

#include "core/error.h"
#include "ops/context_rows/context_rows.h"
#include "ops/registry.h"
#include "program/context_builder.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// (x, member, cu_seqlens) -> y. The matrix that maps x to y is symmetric, so that the operation is its own backward
// pass.
class DocumentMean final : public Op {
 public:
  std::string_view name() const override { return "document_mean"; }
  OpCategory category() const override { return OpCategory::kLoss; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, DocumentMeanIn::x, name());
    const Type& member = required(inputs, DocumentMeanIn::member, name());
    const Type& cu_seqlens = required(inputs, DocumentMeanIn::cu_seqlens, name());
    expect(x.shape.size() == 1 && x.dtype == accumulator_of(x.dtype), name(),
           text_of("x is ", to_text(x), "; expected f32[tokens]"));
    expect(member.dtype == DType::kI32 && member.shape == x.shape, name(),
           text_of("x is ", to_text(x), ", member ", to_text(member), "; expected i32 of the same shape"));
    expect(cu_seqlens.dtype == DType::kI32 && cu_seqlens.shape.size() == 1 && cu_seqlens.shape[0].size > 0, name(),
           text_of("cu_seqlens is ", to_text(cu_seqlens), "; expected i32[documents + 1]"));
    return {x};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = static_cast<double>(outputs[0].elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(DocumentMeanIn::x)) return;
    builder.add(DocumentMeanIn::x,
                document_mean(dy, builder.input(DocumentMeanIn::member), builder.input(DocumentMeanIn::cu_seqlens)));
  }
  // The tokens of a document are on several ranks: each rank computes the means of all.
  void divide_tokens(ContextBuilder& builder, const Node&) const override {
    const ContextInputs& context = builder.inputs();
    const Tensor x = context_gather(builder.input(DocumentMeanIn::x), context.rows);
    const Tensor member = context_gather(builder.input(DocumentMeanIn::member), context.rows);
    builder.set_output(0, context_take(document_mean(x, member, context.cu_seqlens), context.tokens));
  }
};

const DocumentMean kDocumentMean;

}  // namespace

Tensor document_mean(Tensor x, Tensor member, Tensor cu_seqlens) {
  return x.program().append1(kDocumentMean, {}, {x, member, cu_seqlens});
}

void register_document_mean(OpRegistry& registry) { registry.add(kDocumentMean); }

}  // namespace hone
