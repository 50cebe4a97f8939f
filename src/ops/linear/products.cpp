#include "ops/linear/products.h"

namespace hone {
namespace {

std::int64_t columns(const Type& type) { return type.shape[1].size; }

}  // namespace

GemmArgs linear_product(const Type& x, const Type& weight, const Type& y) {
  return {.m = x.rows(),
          .n = columns(y),
          .k = columns(x),
          .transpose_b = Transpose::kYes,
          .a_type = x.dtype,
          .b_type = weight.dtype,
          .c_type = y.dtype,
          .lda = columns(x),
          .ldb = columns(weight),
          .ldc = columns(y)};
}

GemmArgs linear_input_product(const Type& dy, const Type& weight, const Type& dx) {
  return {.m = dy.rows(),
          .n = columns(dx),
          .k = columns(dy),
          .a_type = dy.dtype,
          .b_type = weight.dtype,
          .c_type = dx.dtype,
          .lda = columns(dy),
          .ldb = columns(weight),
          .ldc = columns(dx)};
}

GemmArgs linear_weight_product(const Type& dy, const Type& x, const Type& dweight) {
  return {.m = columns(dy),
          .n = columns(x),
          .k = dy.rows(),
          .transpose_a = Transpose::kYes,
          .a_type = dy.dtype,
          .b_type = x.dtype,
          .c_type = dweight.dtype,
          .lda = columns(dy),
          .ldb = columns(x),
          .ldc = columns(dweight),
          .accumulate = true};
}

}  // namespace hone
