// The kind of bf16 products for the length of a test.
#pragma once

#include "backend/cpu/bf16_products.h"

namespace hone::test {

// The machine must have the kind. The kind in use before comes back when the object dies.
class WithBf16Products {
 public:
  explicit WithBf16Products(Bf16Products kind) { set_bf16_products(kind); }
  WithBf16Products(const WithBf16Products&) = delete;
  WithBf16Products& operator=(const WithBf16Products&) = delete;
  ~WithBf16Products() { set_bf16_products(before_); }

 private:
  Bf16Products before_ = bf16_products();
};

}  // namespace hone::test
