#include "ops/fp8_linear/fp8_linear.h"

#include "backend/fp8_fragments.h"
#include "core/error.h"
#include "ops/linear/products.h"
#include "ops/registry.h"
#include "program/kernel.h"

namespace hone {
namespace {

// (x, weight, scale, bias or none) -> y
class Fp8Linear final : public Op {
 public:
  std::string_view name() const override { return "fp8_linear"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  Attributes default_attributes() const override { return Fp8LinearAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, Fp8LinearIn::x, name());
    const Type& weight = required(inputs, Fp8LinearIn::weight, name());
    const Type& scale = required(inputs, Fp8LinearIn::scale, name());
    const auto& form = attributes.as<Fp8LinearAttributes>();
    const std::int64_t rows = form.scale_rows;
    expect((x.dtype == DType::kBf16 || x.dtype == DType::kF32) && weight.dtype == DType::kU8 && x.shape.size() == 2 &&
               weight.shape.size() == 2 && x.shape[1] == weight.shape[1],
           name(), text_of("x is ", to_text(x), ", weight ", to_text(weight), "; expected [rows, k] and u8 [n, k]"));
    expect(rows >= 1 && rows <= kScaleBlock && kScaleBlock % rows == 0, name(),
           text_of("scale_rows is ", rows, "; expected a divisor of ", kScaleBlock));
    expect(!form.quantizes_x || (rows == kScaleBlock && weight.shape[0].size % kScaleBlock == 0 &&
                                 weight.shape[1].size % kScaleBlock == 0),
           name(),
           text_of("x is multiplied in e4m3 by ", to_text(weight), " with scale_rows ", rows,
                   "; expected multiples of ", kScaleBlock));
    const Type wanted{DType::kF32, {(weight.shape[0].size + rows - 1) / rows, scale_blocks(weight.shape[1].size)}};
    expect(scale == wanted, name(), text_of("scale is ", to_text(scale), "; expected ", to_text(wanted)));
    if (const Type* bias = given(inputs, Fp8LinearIn::bias)) {
      expect(bias->shape.size() == 1 && bias->shape[0] == weight.shape[0] && bias->dtype == x.dtype, name(),
             text_of("bias is ", to_text(*bias), ", weight ", to_text(weight), "; expected [n] and [n, k]"));
    }
    return {Type{x.dtype, {x.shape[0], weight.shape[0].size}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 2.0 * static_cast<double>(required(inputs, Fp8LinearIn::x, name()).elements()) *
                 static_cast<double>(outputs[0].shape[1].size);
    return cost;
  }
};

const Fp8Linear kFp8Linear;

}  // namespace

Tensor fp8_linear(Tensor x, Tensor weight, Tensor scale, Tensor bias, const Fp8LinearAttributes& attributes) {
  return x.program().append1(kFp8Linear, attributes, {x, weight, scale, bias});
}

Fp8Product fp8_product(const KernelCall& call) {
  const TensorView& scale = call.in(Fp8LinearIn::scale);
  GemmArgs args = linear_product(*call.in(Fp8LinearIn::x).type, *call.in(Fp8LinearIn::weight).type, *call.out(0).type);
  HONE_ASSERT(args.a_type == DType::kBf16, "FP8 weights by ", name_of(args.a_type));
  HONE_ASSERT(!call.attributes_as<Fp8LinearAttributes>().quantizes_x, "the FP8 pass has not run");
  args.a = call.in(Fp8LinearIn::x).data;
  args.b = call.in(Fp8LinearIn::weight).data;
  args.c = call.out(0).data;
  if (call.in(Fp8LinearIn::bias)) {
    args.bias = call.in(Fp8LinearIn::bias).data;
    args.bias_type = call.in(Fp8LinearIn::bias).dtype();
  }
  const std::int64_t scale_rows = call.attributes_as<Fp8LinearAttributes>().scale_rows;
  return {.args = args,
          .scales = {scale.as<float>(), scale.row_size(), scale_rows},
          .in_fragments = fp8_in_fragments(call.device->kind(), args.n, args.k, scale_rows)};
}

void register_fp8_linear(OpRegistry& registry) { registry.add(kFp8Linear); }

}  // namespace hone
