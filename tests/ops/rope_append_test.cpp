#include "ops/rope_append/rope_append.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "ops/test_run.h"
#include "passes/fusion.h"

namespace hone::test {
namespace {

constexpr std::int64_t kRopeRows = 6, kRopeHeads = 3, kRopeKvHeads = 2, kRopeHeadDim = 8;
constexpr std::int64_t kRopeWidth = kRopeKvHeads * kRopeHeadDim, kRopeQkv = kRopeHeads * kRopeHeadDim + 2 * kRopeWidth;
constexpr std::int64_t kRopeBlocks = 3, kRopeBlockSize = 4;
constexpr KvAppendAttributes kRopeAttributes{.heads = kRopeHeads, .kv_heads = kRopeKvHeads, .head_dim = kRopeHeadDim};

// The caches are weights here, so that the outputs also show the slots that are not written.
TEST(RopeAppend, Cases) {
  const Type cache{DType::kF32, {kRopeBlocks, kRopeBlockSize, kRopeWidth}};
  OpCase op_case{
      .name = "rope_append",
      .inputs = {{"qkv", {DType::kF32, {{kRopeRows, Count::tokens}, kRopeQkv}}},
                 {"positions", {DType::kI32, {{kRopeRows, Count::tokens}}}},
                 {.name = "k_cache", .type = cache, .weight = true, .differentiable = false},
                 {.name = "v_cache", .type = cache, .weight = true, .differentiable = false},
                 {"slots", {DType::kI32, {{kRopeRows, Count::tokens}}}}},
      .below = {{Count::tokens, 4}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        const auto [qkv, keys, values] =
            rope_append(in[0], rope_table(in[1], {.head_dim = kRopeHeadDim}), in[2], in[3], in[4], kRopeAttributes);
        return {qkv, keys, values};
      },
      .reference =
          [](std::span<const Values> in, const Counts& counts) {
            const std::vector<float> frequencies = rope_inverse_frequencies({.head_dim = kRopeHeadDim});
            Values qkv(in[0].size());
            Values keys = in[2];
            Values values = in[3];
            const std::int64_t rows = rows_in_use(counts, Count::tokens, kRopeRows);
            for (std::int64_t row = 0; row < rows; ++row) {
              const auto at = [&](std::int64_t i) { return in[0][row * kRopeQkv + i]; };
              for (std::int64_t i = 0; i < kRopeQkv; ++i) {
                const std::int64_t head = i / kRopeHeadDim;
                const std::int64_t column = i % kRopeHeadDim;
                const std::int64_t pair = column % (kRopeHeadDim / 2);
                const double angle = static_cast<float>(in[1][row]) * frequencies[static_cast<std::size_t>(pair)];
                const double cosine = static_cast<float>(std::cos(angle));
                const double sine = static_cast<float>(std::sin(angle));
                const double first = at(head * kRopeHeadDim + pair);
                const double second = at(head * kRopeHeadDim + kRopeHeadDim / 2 + pair);
                const bool rotates = head < kRopeHeads + kRopeKvHeads;
                const double rotated = column == pair ? first * cosine - second * sine : second * cosine + first * sine;
                qkv[row * kRopeQkv + i] = rotates ? rotated : at(i);
              }
              const auto slot = static_cast<std::int64_t>(in[4][row]);
              for (std::int64_t i = 0; i < kRopeWidth; ++i) {
                keys[slot * kRopeWidth + i] = qkv[row * kRopeQkv + kRopeHeads * kRopeHeadDim + i];
                values[slot * kRopeWidth + i] = qkv[row * kRopeQkv + kRopeHeads * kRopeHeadDim + kRopeWidth + i];
              }
            }
            return std::vector<Values>{qkv, keys, values};
          },
      .seeded = {false, false, false},
  };
  op_case.inputs[1].values = {3, 0, 17, 200, 5, 1};
  op_case.inputs[4].values = {9, 0, 11, 4, 5, 1};
  check(op_case);
}

// Rotates and appends by the two operations, then fused by the pass.
template <class T>
std::vector<std::vector<T>> run_rope_append(bool fused) {
  register_operations();
  Program program;
  const Type cache{DTypeOf<T>::value, {kRopeBlocks, kRopeBlockSize, kRopeWidth}};
  const Tensor table = program.input("table", {DType::kF32, {{kRopeRows, Count::tokens}, kRopeHeadDim}});
  const Tensor slots = program.input("slots", {DType::kI32, {{kRopeRows, Count::tokens}}});
  const Tensor x = program.input("qkv", {DTypeOf<T>::value, {{kRopeRows, Count::tokens}, kRopeQkv}});
  const Tensor qkv = rope(x, table, rope_of(kRopeAttributes));
  const auto [keys, values] =
      kv_append(qkv, program.weight("k", cache), program.weight("v", cache), slots, kRopeAttributes);
  program.output("qkv", qkv);
  program.output("keys", keys);
  program.output("values", values);
  if (fused) {
    program = fuse(program, FusionScope::kLayer);
    const bool replaced =
        std::ranges::any_of(program.nodes(), [](const Node& node) { return node.op->name() == "rope_append"; });
    EXPECT_TRUE(replaced && program.nodes().size() == 1);
  }
  TestRun run(std::move(program));
  run.set("qkv", normal_values<T>(kRopeRows * kRopeQkv, 1));
  run.set("table", normal_values<float>(kRopeRows * kRopeHeadDim, 2));
  run.template set<std::int32_t>("slots", {9, 0, 11, 4, 5, 1});
  constexpr std::size_t kCache = kRopeBlocks * kRopeBlockSize * kRopeWidth;
  run.set_weight("k", normal_values<T>(kCache, 3));
  run.set_weight("v", normal_values<T>(kCache, 4));
  run.executable().set_count(Count::tokens, kRopeRows - 1);
  run.executable().run();
  return {run.template output<T>("qkv", kRopeRows * kRopeQkv), run.template output<T>("keys", kCache),
          run.template output<T>("values", kCache)};
}

template <class T>
void expect_bits_of_rope_append_parts() {
  const auto fused = run_rope_append<T>(true);
  const auto parts = run_rope_append<T>(false);
  for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_TRUE(same_bits(fused[i], parts[i])) << i;
}

TEST(RopeAppend, BitsOfRopeThenAppend) {
  expect_bits_of_rope_append_parts<float>();
  expect_bits_of_rope_append_parts<BFloat16>();
  expect_bits_of_rope_append_parts<double>();
}

// A rotation of interleaved pairs, or of a part of each head, is left to rope.
TEST(RopeAppend, FusesWholeHeadsOnly) {
  register_operations();
  const RopeAttributes whole = rope_of(kRopeAttributes);
  RopeAttributes interleaved = whole;
  interleaved.interleaved = true;
  RopeAttributes partial = whole;
  partial.offset = 4;
  for (const RopeAttributes& a : {whole, interleaved, partial}) {
    Program program;
    const Type cache{DType::kF32, {kRopeBlocks, kRopeBlockSize, kRopeWidth}};
    const Tensor table = program.input("table", {DType::kF32, {{kRopeRows, Count::tokens}, a.rotated_dim()}});
    const Tensor slots = program.input("slots", {DType::kI32, {{kRopeRows, Count::tokens}}});
    const Tensor x = program.input("qkv", {DType::kF32, {{kRopeRows, Count::tokens}, kRopeQkv}});
    const auto [keys, values] =
        kv_append(rope(x, table, a), program.weight("k", cache), program.weight("v", cache), slots, kRopeAttributes);
    program.output("keys", keys);
    program.output("values", values);
    const bool is_whole = a.offset == 0 && !a.interleaved;
    EXPECT_EQ(fuse(program, FusionScope::kLayer).nodes().size(), is_whole ? 1u : 2u);
  }
}

TEST(RopeAppend, RefusesShapesThatDoNotFit) {
  register_operations();
  Program program;
  const Tensor qkv = program.input("qkv", {DType::kF32, {4, kRopeQkv}});
  const Tensor table = program.input("table", {DType::kF32, {4, kRopeHeadDim}});
  const Tensor slots = program.input("slots", {DType::kI32, {4}});
  const Type cache{DType::kF32, {kRopeBlocks, kRopeBlockSize, kRopeWidth}};
  const Tensor keys = program.state("k", cache);
  const Tensor values = program.state("v", cache);
  EXPECT_THROW((void)rope_append(qkv, slots, keys, values, slots, kRopeAttributes), Error);
  EXPECT_THROW((void)rope_append(qkv, table, keys, values, table, kRopeAttributes), Error);
  EXPECT_THROW((void)rope_append(table, table, keys, values, slots, kRopeAttributes), Error);
}

}  // namespace
}  // namespace hone::test
