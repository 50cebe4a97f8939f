#include "ops/latent_cache/latent_cache.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/op_case.h"

namespace hone::test {
namespace {

constexpr std::int64_t kPages = 3, kPageRows = 4, kLatentRank = 8, kRopeDim = 4, kLatentWidth = kLatentRank + kRopeDim;
const Type kLatentCache{DType::kF32, {kPages, kPageRows, kLatentWidth}};

// The cache is a weight, so that the output also shows the slots that are not written.
TEST(LatentCache, AppendCases) {
  constexpr std::int64_t kRows = 6;
  const Dim rows(kRows, Count::tokens);
  OpCase op_case{
      .name = "latent_cache_append",
      .inputs = {{"latent", {DType::kF32, {rows, kLatentRank}}},
                 {"rope_key", {DType::kF32, {rows, kRopeDim}}},
                 {.name = "cache", .type = kLatentCache, .weight = true, .differentiable = false},
                 {"slots", {DType::kI32, {rows}}}},
      .below = {{Count::tokens, 4}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {latent_cache_append(in[0], in[1], in[2], in[3])};
      },
      .reference =
          [](std::span<const Values> in, const Counts& counts) {
            Values cache = in[2];
            for (std::int64_t row = 0; row < rows_in_use(counts, Count::tokens, kRows); ++row) {
              const auto slot = cache.begin() + static_cast<std::int64_t>(in[3][row]) * kLatentWidth;
              std::copy_n(in[0].begin() + row * kLatentRank, kLatentRank, slot);
              std::copy_n(in[1].begin() + row * kRopeDim, kRopeDim, slot + kLatentRank);
            }
            return std::vector<Values>{cache};
          },
      .seeded = {false},
  };
  op_case.inputs[3].values = {9, 0, 11, 4, 5, 1};
  check(op_case);
}

TEST(LatentCache, RowsCases) {
  constexpr std::int64_t kUsed = 2;
  const Count pages("pages");
  OpCase op_case{
      .name = "latent_cache_rows",
      .inputs = {{.name = "cache", .type = kLatentCache, .weight = true, .differentiable = false},
                 {"pages", {DType::kI32, {{kUsed, pages}}}}},
      .below = {{pages, 1}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        const auto [latent, rope_key] = latent_cache_rows(in[0], in[1], kRopeDim);
        return {latent, rope_key};
      },
      .reference =
          [pages](std::span<const Values> in, const Counts& counts) {
            Values latent(kUsed * kPageRows * kLatentRank), rope_key(kUsed * kPageRows * kRopeDim);
            for (std::int64_t row = 0; row < rows_in_use(counts, pages, kUsed) * kPageRows; ++row) {
              const auto page = static_cast<std::int64_t>(in[1][row / kPageRows]);
              const auto from = in[0].begin() + (page * kPageRows + row % kPageRows) * kLatentWidth;
              std::copy_n(from, kLatentRank, latent.begin() + row * kLatentRank);
              std::copy_n(from + kLatentRank, kRopeDim, rope_key.begin() + row * kRopeDim);
            }
            return std::vector<Values>{latent, rope_key};
          },
      .seeded = {false, false},
  };
  op_case.inputs[1].values = {2, 0};
  check(op_case);
}

TEST(LatentCache, PagesCases) {
  constexpr LatentHeadsAttributes kHeads{.heads = 3, .nope_dim = 8, .rope_dim = kRopeDim, .value_dim = 8};
  constexpr std::int64_t kRows = 2 * kPageRows;
  check({.name = "latent_cache_pages",
         .inputs = {{.name = "kv", .type = {DType::kF32, {kRows, kHeads.kv_width()}}, .differentiable = false},
                    {.name = "rope_key", .type = {DType::kF32, {kRows, kRopeDim}}, .differentiable = false}},
         .build = [kHeads](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
           const auto [keys, values] = latent_cache_pages(in[0], in[1], {.heads = kHeads, .block_size = kPageRows});
           return {keys, values};
         },
         .reference =
             [kHeads](std::span<const Values> in, const Counts&) {
               Values keys(kRows * kHeads.query_width()), values(keys.size());  // the padding of values is zero
               for (std::int64_t head = 0; head < kRows * kHeads.heads; ++head) {
                 const auto kv = in[0].begin() + head * (kHeads.nope_dim + kHeads.value_dim);
                 const auto key = keys.begin() + head * kHeads.head_dim();
                 std::copy_n(kv, kHeads.nope_dim, key);
                 std::copy_n(in[1].begin() + head / kHeads.heads * kRopeDim, kRopeDim, key + kHeads.nope_dim);
                 std::copy_n(kv + kHeads.nope_dim, kHeads.value_dim, values.begin() + head * kHeads.head_dim());
               }
               return std::vector<Values>{keys, values};
             },
         .seeded = {false, false}});
}

}  // namespace
}  // namespace hone::test
