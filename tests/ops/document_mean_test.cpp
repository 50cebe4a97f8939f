#include "ops/document_mean/document_mean.h"

#include <gtest/gtest.h>

#include <memory>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "program/executable.h"

namespace hone::test {
namespace {

Values by_definition(const Values& x, const Values& member, const Values& cu_seqlens) {
  Values y(x.size(), 0.0);
  for (std::size_t d = 0; d + 1 < cu_seqlens.size(); ++d) {
    double sum = 0;
    double members = 0;
    for (auto t = static_cast<std::size_t>(cu_seqlens[d]); t < static_cast<std::size_t>(cu_seqlens[d + 1]); ++t) {
      if (member[t] < 0) continue;
      sum += x[t];
      ++members;
    }
    for (auto t = static_cast<std::size_t>(cu_seqlens[d]); t < static_cast<std::size_t>(cu_seqlens[d + 1]); ++t) {
      if (member[t] >= 0) y[t] = sum / members;
    }
  }
  return y;
}

TEST(DocumentMean, Cases) {
  // Documents of 40, 0, 3 (without members) and 30 tokens, an absent document, and two rows outside all documents.
  const Values cu_seqlens{0, 40, 40, 43, 73, 73};
  Values member;
  for (int t = 0; t < 75; ++t) member.push_back(t % 5 == 0 || (t >= 40 && t < 43) ? -1 : t % 7);
  const Shape rows{{75, Count::tokens}};
  check({
      .name = "document_mean",
      .inputs = {{.name = "x", .type = {DType::kF32, rows}, .keeps_dtype = true},
                 {.name = "member", .type = {DType::kI32, rows}, .values = member},
                 {.name = "cu_seqlens", .type = {DType::kI32, {6}}, .values = cu_seqlens}},
      .below = {{Count::tokens, 73}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {document_mean(in[0], in[1], in[2])};
      },
      .reference = [](std::span<const Values> in,
                      const Counts&) { return std::vector<Values>{by_definition(in[0], in[1], in[2])}; },
  });
}

TEST(DocumentMean, NamesWhatDoesNotFit) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {4}});
  const Tensor member = program.input("member", {DType::kI32, {4}});
  const Tensor bounds = program.input("bounds", {DType::kI32, {3}});
  EXPECT_THROW((void)document_mean(member, member, bounds), Error);
  EXPECT_THROW((void)document_mean(x, bounds, bounds), Error);
  EXPECT_THROW((void)document_mean(x, member, x), Error);
  EXPECT_EQ(document_mean(x, member, bounds).type(), x.type());
}

TEST(DocumentMean, RefusesDocumentsBehindTheEnd) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {2}});
  program.output("y",
                 document_mean(x, program.input("member", {DType::kI32, {2}}), program.input("b", {DType::kI32, {2}})));
  Executable executable(std::move(program), std::make_shared<Arena>(cpu_device()), {});
  executable.set<float>("x", std::vector<float>{1, 2});
  executable.set<std::int32_t>("member", std::vector<std::int32_t>{0, 0});
  executable.set<std::int32_t>("b", std::vector<std::int32_t>{0, 3});
  EXPECT_THROW(executable.run(), Defect);
}

}  // namespace
}  // namespace hone::test
