#include "ops/next_in_document/next_in_document.h"

#include <gtest/gtest.h>

#include "ops/op_case.h"

namespace hone::test {
namespace {

TEST(NextInDocument, Cases) {
  // Documents of 4, 0, 1 and 3 tokens, an absent document, and two rows outside all documents.
  const Values bounds{0, 4, 4, 5, 8, 8};
  const Values x{5, 6, 7, 8, 9, 1, 2, 3, 4, 4};
  check({.name = "next_in_document",
         .inputs = {{.name = "x", .type = {DType::kI32, {{10, Count::tokens}}}, .values = x},
                    {.name = "cu_seqlens", .type = {DType::kI32, {6}}, .values = bounds}},
         .below = {{Count::tokens, 8}},
         .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
           const Tensor once = next_in_document(in[0], in[1], {.last = -1});
           return {once, next_in_document(once, in[1], {.last = -7})};
         },
         .reference =
             [](std::span<const Values>, const Counts&) {
               return std::vector<Values>{{6, 7, 8, -1, -1, 2, 3, -1, -1, -1}, {7, 8, -1, -7, -7, 3, -1, -7, -7, -7}};
             },
         .seeded = {false, false}});
}

}  // namespace
}  // namespace hone::test
