#include "ops/latent_attention/latent_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/test_run.h"
#include "support/device.h"

namespace hone::test {
namespace {

struct LatentSizes {
  std::int64_t heads = 3, rank = 24, rope = 8, block_size = 16;

  [[nodiscard]] std::int64_t width() const { return rank + rope; }
};

// Positions [start, start + count) of a sequence.
struct LatentPart {
  std::size_t sequence;
  std::int64_t start, count;
};

// Queries and latent rows of a few sequences, in pages of a shuffled block table.
template <class T>
class LatentSequences {
 public:
  LatentSequences(const LatentSizes& sizes, std::vector<std::int64_t> lengths)
      : sizes_(sizes), lengths_(std::move(lengths)) {
    const std::int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    max_blocks_ = (longest + sizes.block_size - 1) / sizes.block_size + 1;
    blocks_ = static_cast<std::int64_t>(lengths_.size()) * max_blocks_ + 1;
    while (blocks_ % 7 == 0) ++blocks_;
    for (std::size_t s = 0; s < lengths_.size(); ++s) {
      rows_.push_back(normal_values<T>(static_cast<std::size_t>(lengths_[s] * sizes.width()), s));
    }
  }
  // The same numbers in another type.
  template <class U>
  explicit LatentSequences(const LatentSequences<U>& other)
      : sizes_(other.sizes_), lengths_(other.lengths_), max_blocks_(other.max_blocks_), blocks_(other.blocks_) {
    const auto converted = [](const std::vector<std::vector<U>>& from) {
      std::vector<std::vector<T>> to;
      for (const auto& each : from) {
        auto& values = to.emplace_back();
        for (const U value : each) values.push_back(static_cast<T>(static_cast<float>(value)));
      }
      return to;
    };
    rows_ = converted(other.rows_);
  }

  // The results of parts of different sequences, computed in one step with `spare` rows more than they have. Positions
  // after a part are NaN in the cache.
  [[nodiscard]] std::vector<T> outputs(const std::vector<LatentPart>& parts, std::int64_t spare = 3) const {
    const auto sequences = static_cast<std::int64_t>(parts.size());
    std::int64_t used = 0;
    std::vector<std::int32_t> cu_seqlens{0}, starts, table;
    std::vector<T> query;
    const auto cache_size = static_cast<std::size_t>(blocks_ * sizes_.block_size * sizes_.width());
    std::vector<T> cache(cache_size, static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
    for (const LatentPart& part : parts) {
      used += part.count;
      cu_seqlens.push_back(static_cast<std::int32_t>(used));
      starts.push_back(static_cast<std::int32_t>(part.start));
      append_queries(part, query);
      for (std::int64_t i = 0; i < max_blocks_; ++i) table.push_back(page(part.sequence, i));
      for (std::int64_t i = 0; i < part.start + part.count; ++i) {
        const std::int64_t slot =
            page(part.sequence, i / sizes_.block_size) * sizes_.block_size + i % sizes_.block_size;
        std::copy_n(rows_[part.sequence].begin() + i * sizes_.width(), sizes_.width(),
                    cache.begin() + slot * sizes_.width());
      }
    }
    query.resize(static_cast<std::size_t>((used + spare) * sizes_.heads * sizes_.width()), static_cast<T>(1e3f));
    TestRun run(program(used + spare, sequences));
    run.states().upload("cache", std::as_bytes(std::span(cache)));
    run.set("query", query);
    run.set("table", table);
    run.set("cu_seqlens", cu_seqlens);
    run.set("starts", starts);
    run.executable().set_count(Count::tokens, used);
    run.executable().set_count(Count::sequences, sequences);
    run.executable().run();
    const auto out = static_cast<std::size_t>(sizes_.heads * sizes_.rank);
    std::vector<T> o = run.template output<T>("o", static_cast<std::size_t>(used + spare) * out);
    for (std::size_t i = static_cast<std::size_t>(used) * out; i < o.size(); ++i)
      EXPECT_EQ(static_cast<double>(static_cast<float>(o[i])), 0.0) << "in a row past the count";
    o.resize(static_cast<std::size_t>(used) * out);
    return o;
  }

 private:
  template <class>
  friend class LatentSequences;

  // Drawn where they are used, since those of all positions would be many. They are numbers of bf16 in every type.
  void append_queries(const LatentPart& part, std::vector<T>& to) const {
    const RandomStream random(part.sequence, "queries");
    const std::int64_t step = sizes_.heads * sizes_.width();
    for (std::int64_t i = part.start * step; i < (part.start + part.count) * step; ++i) {
      const BFloat16 value(static_cast<float>(random.normal(static_cast<std::uint64_t>(i))));
      to.push_back(static_cast<T>(static_cast<float>(value)));
    }
  }
  [[nodiscard]] std::int32_t page(std::size_t sequence, std::int64_t i) const {  // never the same page twice
    return static_cast<std::int32_t>((static_cast<std::int64_t>(sequence) * max_blocks_ + i) * 7 % blocks_);
  }
  [[nodiscard]] Program program(std::int64_t capacity, std::int64_t sequences) const {
    Program program;
    const DType dtype = DTypeOf<T>::value;
    const Dim requests(sequences, Count::sequences);
    program.output(
        "o",
        latent_attention(program.input("query", {dtype, {Dim(capacity, Count::tokens), sizes_.heads * sizes_.width()}}),
                         program.state("cache", {dtype, {blocks_, sizes_.block_size, sizes_.width()}}),
                         program.input("table", {DType::kI32, {requests, max_blocks_}}),
                         program.input("cu_seqlens", {DType::kI32, {sequences + 1}}),
                         program.input("starts", {DType::kI32, {requests}}),
                         {.heads = sizes_.heads, .rank = sizes_.rank, .scale = 1.3 / std::sqrt(sizes_.width())}));
    return program;
  }

  LatentSizes sizes_;
  std::vector<std::int64_t> lengths_;
  std::int64_t max_blocks_ = 0, blocks_ = 0;
  std::vector<std::vector<T>> rows_;  // of each sequence
};

// Attention of each head to all rows that a query sees, in f64.
TEST(LatentAttention, Cases) {
  constexpr LatentSizes kSizes{.heads = 3, .rank = 8, .rope = 4, .block_size = 4};
  constexpr std::int64_t kBlocks = 6, kMaxBlocks = 3, kRows = 7;
  const std::vector<double> table{4, 0, 2, 5, 1, 3};
  const std::vector<double> starts{5, 0};
  const std::vector<double> cu_seqlens{0, 4, 7};
  OpCase op_case{
      .name = "latent_attention",
      .inputs = {{.name = "query",
                  .type = {DType::kF32, {{kRows, Count::tokens}, kSizes.heads * kSizes.width()}},
                  .differentiable = false},
                 {.name = "cache",
                  .type = {DType::kF32, {kBlocks, kSizes.block_size, kSizes.width()}},
                  .weight = true,
                  .differentiable = false},
                 {"table", {DType::kI32, {2, kMaxBlocks}}},
                 {"cu_seqlens", {DType::kI32, {3}}},
                 {"starts", {DType::kI32, {2}}}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {latent_attention(in[0], in[1], in[2], in[3], in[4],
                                 {.heads = kSizes.heads, .rank = kSizes.rank, .scale = 0.4})};
      },
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            Values o;
            for (std::int64_t row = 0; row < kRows; ++row) {
              const std::int64_t sequence = row < 4 ? 0 : 1;
              const std::int64_t seen = static_cast<std::int64_t>(starts[sequence] - cu_seqlens[sequence]) + row + 1;
              for (std::int64_t head = 0; head < kSizes.heads; ++head) {
                const auto q = in[0].begin() + (row * kSizes.heads + head) * kSizes.width();
                Values sums(kSizes.rank);
                double all = 0;
                for (std::int64_t i = 0; i < seen; ++i) {
                  const auto page = static_cast<std::int64_t>(table[sequence * kMaxBlocks + i / kSizes.block_size]);
                  const auto key = in[1].begin() + (page * kSizes.block_size + i % kSizes.block_size) * kSizes.width();
                  const double weight = std::exp(0.4 * std::inner_product(q, q + kSizes.width(), key, 0.0));
                  all += weight;
                  for (std::int64_t d = 0; d < kSizes.rank; ++d) sums[d] += weight * key[d];
                }
                for (const double sum : sums) o.push_back(sum / all);
              }
            }
            return std::vector<Values>{o};
          },
      .seeded = {false},
  };
  op_case.inputs[2].values = table;
  op_case.inputs[3].values = cu_seqlens;
  op_case.inputs[4].values = starts;
  check(op_case);
}

// Compares parts that are computed alone, or with other sequences, with rows of one large step.
template <class T>
void expect_bits_of_one_step(const LatentSequences<T>& sequences, const LatentSizes& sizes,
                             const std::vector<LatentPart>& whole, const std::vector<std::vector<LatentPart>>& steps) {
  const std::vector<T> expected = sequences.outputs(whole);
  const std::int64_t out = sizes.heads * sizes.rank;
  for (const std::vector<LatentPart>& step : steps) {
    const std::vector<T> result = sequences.outputs(step);
    auto at = result.begin();
    for (const LatentPart& part : step) {
      const bool is_in = std::ranges::any_of(whole, [&](const LatentPart& each) {
        return each.sequence == part.sequence && each.start <= part.start &&
               part.start + part.count <= each.start + each.count;
      });
      ASSERT_TRUE(is_in) << "the large step has no rows " << part.start << " of sequence " << part.sequence;
      std::int64_t first = 0;  // row of the part in the large step
      for (const LatentPart& each : whole) {
        if (each.sequence == part.sequence) {
          first += part.start - each.start;
          break;
        }
        first += each.count;
      }
      const std::vector<T> rows(at, at + part.count * out);
      at += part.count * out;
      EXPECT_TRUE(same_bits(
          rows, std::vector<T>(expected.begin() + first * out, expected.begin() + (first + part.count) * out)))
          << sizes.heads << " heads, pages of " << sizes.block_size << ", sequence " << part.sequence << ", rows "
          << part.start << " to " << part.start + part.count << " of a step of " << step.size() << " sequences";
    }
  }
}

template <class T>
void expect_bits_of_small_steps(std::int64_t block_size) {
  const LatentSizes sizes{.block_size = block_size};
  const std::vector<std::int64_t> lengths{5, 150, 1, 64, 33};
  const LatentSequences<T> sequences(sizes, lengths);
  std::vector<LatentPart> whole;
  for (std::size_t s = 0; s < lengths.size(); ++s) whole.push_back({s, 0, lengths[s]});
  expect_bits_of_one_step(sequences, sizes, whole,
                          {{{1, 0, 150}},
                           {{1, 100, 50}, {0, 4, 1}},
                           {{3, 63, 1}, {4, 16, 17}, {1, 149, 1}, {2, 0, 1}},
                           {{4, 0, 1}},
                           {{1, 63, 3}}});
}

TEST(LatentAttention, StepsAndPagesChangeNoBit) {
  for (const std::int64_t block_size : {4, 16, 64}) {
    expect_bits_of_small_steps<float>(block_size);
    expect_bits_of_small_steps<BFloat16>(block_size);
    expect_bits_of_small_steps<double>(block_size);
  }
}

// The sizes of DeepSeek's models, by both kernels that a GPU may have for them.
class WideLatentRows : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string_view(GetParam()) == "wgmma" && test_device().kind() == DeviceKind::kCpu) {
      GTEST_SKIP() << "a CPU has one kernel";
    }
    ::setenv("HONE_LATENT_KERNEL", GetParam(), 1);
  }
  void TearDown() override { ::unsetenv("HONE_LATENT_KERNEL"); }
};
INSTANTIATE_TEST_SUITE_P(LatentAttention, WideLatentRows, ::testing::Values("simple", "wgmma"),
                         [](const auto& kernel) { return std::string(kernel.param); });

// The kernel of Hopper divides the keys of a sequence into splits of 1,024; a large step merges them in a block and a
// small one in another kernel.
TEST_P(WideLatentRows, InStepsAndPagesChangeNoBit) {
  const bool has_splits = test_device().kind() == DeviceKind::kCuda;
  for (const auto& [heads, block_size] : {std::pair{16, 8}, {16, 32}, {16, 128}, {5, 32}}) {
    const LatentSizes sizes{.heads = heads, .rank = 512, .rope = 64, .block_size = block_size};
    const std::int64_t length = has_splits ? 2100 : 70;
    const LatentSequences<BFloat16> sequences(sizes, {5, length, 1, 130});
    const std::int64_t rows = has_splits ? 525 : 60;  // enough that a GPU merges the splits of an item in one block
    std::vector<LatentPart> many;                     // and as many sequences of one row each
    for (std::int64_t i = 0; i < (has_splits ? 140 : 4); ++i) many.push_back({1, length - 1 - 3 * i, 1});
    expect_bits_of_one_step(sequences, sizes, {{0, 0, 5}, {1, length - rows, rows}, {2, 0, 1}, {3, 100, 30}},
                            {{{1, length - 1, 1}},
                             {{1, length - 54, 10}, {3, 129, 1}, {2, 0, 1}},
                             {{0, 4, 1}, {1, length - 17, 3}},
                             {{0, 4, 1}, {1, length - 52, 1}, {1, length - 1, 1}, {3, 129, 1}, {2, 0, 1}},
                             many,
                             {{3, 110, 9}, {0, 0, 5}, {1, length - 52, 1}}});
  }
  const LatentSizes wide{.heads = 128, .rank = 512, .rope = 64, .block_size = 32};
  const std::int64_t length = has_splits ? 1100 : 70;
  const LatentSequences<BFloat16> sequences(wide, {length, 70});
  expect_bits_of_one_step(sequences, wide, {{0, length - 60, 60}, {1, 60, 10}},
                          {{{0, length - 1, 1}}, {{1, 69, 1}, {0, length - 50, 2}}});
}

TEST_P(WideLatentRows, AreThoseOfF64) {
  const std::int64_t length = test_device().kind() == DeviceKind::kCuda ? 1300 : 70;
  for (const std::int64_t heads : {16, 20, 128}) {
    const LatentSizes sizes{.heads = heads, .rank = 512, .rope = 64, .block_size = 32};
    const LatentSequences<BFloat16> sequences(sizes, {length, 9, 64});
    // One row each, whose keys end near the edges of tiles and splits.
    std::vector<LatentPart> single{{1, 8, 1}, {2, 63, 1}};
    for (const std::int64_t last :
         {length - 1, std::int64_t{63}, std::int64_t{64}, std::int64_t{1023}, std::int64_t{1024}}) {
      if (last < length) single.push_back({0, last, 1});
    }
    for (const auto& parts : {std::vector<LatentPart>{{0, length - 4, 4}, {1, 3, 6}, {2, 63, 1}}, single}) {
      const std::vector<BFloat16> result = sequences.outputs(parts);
      const std::vector<double> expected = LatentSequences<double>(sequences).outputs(parts);
      ASSERT_EQ(result.size(), expected.size());
      for (std::size_t i = 0; i < result.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(static_cast<float>(result[i])), expected[i],
                    0.01 + 0.01 * std::abs(expected[i]))
            << heads << " heads, " << parts.size() << " parts, element " << i;
      }
    }
  }
}

TEST(LatentAttention, APageThatDoesNotExistIsADefect) {
  if (!test_device_throws()) GTEST_SKIP() << "kernels of a GPU throw nothing";
  Program program;
  program.output("o", latent_attention(program.input("query", {DType::kF32, {1, 12}}),
                                       program.state("cache", {DType::kF32, {2, 4, 12}}),
                                       program.input("table", {DType::kI32, {1, 2}}),
                                       program.input("cu_seqlens", {DType::kI32, {2}}),
                                       program.input("starts", {DType::kI32, {1}}), {.heads = 1, .rank = 8}));
  TestRun run(std::move(program));
  run.set<std::int32_t>("table", {1, 2});
  run.set<std::int32_t>("cu_seqlens", {0, 1});
  run.set<std::int32_t>("starts", {3});
  EXPECT_NO_THROW(run.executable().run());
  run.set<std::int32_t>("starts", {4});
  EXPECT_THROW(run.executable().run(), Defect);
}

}  // namespace
}  // namespace hone::test
