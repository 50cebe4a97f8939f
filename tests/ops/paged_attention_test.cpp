#include "ops/paged_attention/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "ops/attention/attention.h"
#include "ops/kv_append/kv_append.h"
#include "ops/op_case.h"
#include "ops/test_run.h"
#include "support/device.h"

namespace hone::test {
namespace {

// The caches are weights here, so that the outputs also show the slots that are not written.
TEST(KvAppend, Cases) {
  constexpr std::int64_t kRows = 6, kBlocks = 3, kBlockSize = 4, kWidth = 2 * 8;
  const Type cache{DType::kF32, {kBlocks, kBlockSize, kWidth}};
  OpCase op_case{
      .name = "kv_append",
      .inputs = {{"qkv", {DType::kF32, {{kRows, Count::tokens}, 7 * 8}}},
                 {.name = "k_cache", .type = cache, .weight = true, .differentiable = false},
                 {.name = "v_cache", .type = cache, .weight = true, .differentiable = false},
                 {"slots", {DType::kI32, {{kRows, Count::tokens}}}}},
      .below = {{Count::tokens, 4}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        const auto [keys, values] = kv_append(in[0], in[1], in[2], in[3], {.heads = 3, .kv_heads = 2, .head_dim = 8});
        return {keys, values};
      },
      .reference =
          [](std::span<const Values> in, const Counts& counts) {
            Values keys = in[1];
            Values values = in[2];
            const std::int64_t rows = rows_in_use(counts, Count::tokens, kRows);
            for (std::int64_t row = 0; row < rows; ++row) {
              const auto slot = static_cast<std::int64_t>(in[3][row]);
              for (std::int64_t i = 0; i < kWidth; ++i) {
                keys[slot * kWidth + i] = in[0][row * 56 + 24 + i];
                values[slot * kWidth + i] = in[0][row * 56 + 40 + i];
              }
            }
            return std::vector<Values>{keys, values};
          },
      .seeded = {false, false},
  };
  op_case.inputs[3].values = {9, 0, 11, 4, 5, 1};
  check(op_case);
}

TEST(KvAppend, SlotOutsideTheCacheIsADefect) {
  if (!test_device_throws()) GTEST_SKIP() << "kernels of a GPU throw nothing";
  Program program;
  const Type cache{DType::kF32, {2, 4, 8}};
  const Tensor qkv = program.input("qkv", {DType::kF32, {{2, Count::tokens}, 24}});
  const auto [keys, values] = kv_append(qkv, program.state("k", cache), program.state("v", cache),
                                        program.input("slots", {DType::kI32, {{2, Count::tokens}}}),
                                        {.heads = 1, .kv_heads = 1, .head_dim = 8});
  program.output("k", keys);
  program.output("v", values);
  TestRun run(std::move(program));
  run.set<std::int32_t>("slots", {0, 8});
  EXPECT_THROW(run.executable().run(), Defect);
  run.executable().set_count(Count::tokens, 1);
  EXPECT_NO_THROW(run.executable().run());
}

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 16, kRowWidth = (kHeads + 2 * kKvHeads) * kHeadDim;

// Sizes of the heads and of the pages, of which a sequence has 192 positions at most.
struct PageSizes {
  std::int64_t head_dim = kHeadDim;
  std::int64_t block_size = 16;
  std::int64_t value_dim = head_dim;

  [[nodiscard]] std::int64_t width() const { return (kHeads + 2 * kKvHeads) * head_dim; }
  [[nodiscard]] std::int64_t out() const { return kHeads * head_dim; }
  [[nodiscard]] std::int64_t max_blocks() const { return 192 / block_size; }
  [[nodiscard]] std::int64_t blocks() const { return 5 * max_blocks() + 1; }  // no multiple of 7
};

const std::vector<std::int32_t> kLengths{5, 150, 1, 64, 33};

std::int32_t total_length() { return std::accumulate(kLengths.begin(), kLengths.end(), 0); }

std::vector<std::int32_t> whole_cu_seqlens() {
  std::vector<std::int32_t> cu_seqlens{0};
  for (const std::int32_t length : kLengths) cu_seqlens.push_back(cu_seqlens.back() + length);
  return cu_seqlens;
}

template <class T>
std::vector<T> whole(const std::vector<T>& qkv, const PageSizes& sizes) {
  Program program;
  const Tensor x = program.input("qkv", {DTypeOf<T>::value, {total_length(), sizes.width()}});
  const auto entries = static_cast<std::int64_t>(kLengths.size()) + 1;
  program.output("o", attention(x, program.input("cu_seqlens", {DType::kI32, {entries}}),
                                {.heads = kHeads,
                                 .kv_heads = kKvHeads,
                                 .head_dim = sizes.head_dim,
                                 .scale = 0.25,
                                 .value_dim = sizes.value_dim}));
  TestRun run(std::move(program));
  run.set("qkv", qkv);
  run.set("cu_seqlens", whole_cu_seqlens());
  run.executable().run();
  return run.output<T>("o", static_cast<std::size_t>(total_length() * sizes.out()));
}

// Requests that write pages of a shuffled block table and attend to them, `chunk` rows of each request at a time. What
// has not been written yet is NaN.
template <class T>
class Paged {
 public:
  Paged(std::int64_t chunk, const PageSizes& sizes) : chunk_(chunk), sizes_(sizes), run_(program()) {
    const auto elements = static_cast<std::size_t>(sizes.blocks() * sizes.block_size * kKvHeads * sizes.head_dim);
    const std::vector<T> unwritten(elements, static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
    for (const std::string_view name : {"k", "v"}) run_.states().upload(name, std::as_bytes(std::span(unwritten)));
  }

  [[nodiscard]] std::vector<T> outputs(const std::vector<T>& qkv) {
    std::vector<T> o(static_cast<std::size_t>(total_length() * sizes_.out()));
    const std::vector<std::int32_t> first = whole_cu_seqlens();
    for (std::int32_t start = 0; start < *std::max_element(kLengths.begin(), kLengths.end());
         start += static_cast<std::int32_t>(chunk_)) {
      Step step;
      for (std::size_t s = 0; s < kLengths.size(); ++s) {
        const std::int32_t end = std::min(kLengths[s], start + static_cast<std::int32_t>(chunk_));
        if (start < end) step.add(s, start, end, first[s], sizes_);
      }
      compute(step, qkv, o);
    }
    return o;
  }

 private:
  struct Step {
    std::vector<std::int32_t> rows, slots, cu_seqlens{0}, starts, block_table;

    void add(std::size_t sequence, std::int32_t start, std::int32_t end, std::int32_t first_row,
             const PageSizes& sizes) {
      const auto page = [&](std::int64_t i) {  // never the same page twice
        return static_cast<std::int32_t>((static_cast<std::int64_t>(sequence) * sizes.max_blocks() + i) * 7 %
                                         sizes.blocks());
      };
      for (std::int32_t position = start; position < end; ++position) {
        rows.push_back(first_row + position);
        slots.push_back(page(position / sizes.block_size) * sizes.block_size + position % sizes.block_size);
      }
      cu_seqlens.push_back(cu_seqlens.back() + end - start);
      starts.push_back(start);
      for (std::int64_t i = 0; i < sizes.max_blocks(); ++i) block_table.push_back(page(i));
    }
  };

  [[nodiscard]] Program program() const {
    Program program;
    const auto sequences = static_cast<std::int64_t>(kLengths.size());
    const Dim rows(chunk_ * sequences, Count::tokens);
    const Type cache{DTypeOf<T>::value, {sizes_.blocks(), sizes_.block_size, kKvHeads * sizes_.head_dim}};
    const Tensor qkv = program.input("qkv", {DTypeOf<T>::value, {rows, sizes_.width()}});
    const auto [keys, values] = kv_append(qkv, program.state("k", cache), program.state("v", cache),
                                          program.input("slots", {DType::kI32, {rows}}),
                                          {.heads = kHeads, .kv_heads = kKvHeads, .head_dim = sizes_.head_dim});
    const Dim requests(sequences, Count::sequences);
    program.output("o", paged_attention(qkv, keys, values,
                                        program.input("block_table", {DType::kI32, {requests, sizes_.max_blocks()}}),
                                        program.input("cu_seqlens", {DType::kI32, {sequences + 1}}),
                                        program.input("starts", {DType::kI32, {requests}}),
                                        {.heads = kHeads,
                                         .kv_heads = kKvHeads,
                                         .head_dim = sizes_.head_dim,
                                         .scale = 0.25,
                                         .block_size = sizes_.block_size,
                                         .value_dim = sizes_.value_dim}));
    return program;
  }

  // Rows past the counts hold invalid ids, which must not be read.
  void compute(Step& step, const std::vector<T>& qkv, std::vector<T>& o) {
    const std::size_t used = step.rows.size();
    const auto capacity = static_cast<std::size_t>(chunk_) * kLengths.size();
    const auto width = static_cast<std::size_t>(sizes_.width());
    const auto out = static_cast<std::size_t>(sizes_.out());
    std::vector<T> rows(capacity * width, static_cast<T>(1e3f));
    for (std::size_t i = 0; i < used; ++i)
      std::copy_n(qkv.begin() + step.rows[i] * sizes_.width(), width,
                  rows.begin() + static_cast<std::ptrdiff_t>(i * width));
    const auto sequences = static_cast<std::int64_t>(step.starts.size());
    step.slots.resize(capacity, -1);
    step.starts.resize(kLengths.size(), 1 << 30);
    step.block_table.resize(kLengths.size() * static_cast<std::size_t>(sizes_.max_blocks()), -1);
    step.cu_seqlens.resize(kLengths.size() + 1, step.cu_seqlens.back());
    run_.set("qkv", rows);
    run_.set("slots", step.slots);
    run_.set("cu_seqlens", step.cu_seqlens);
    run_.set("starts", step.starts);
    run_.set("block_table", step.block_table);
    run_.executable().set_count(Count::tokens, static_cast<std::int64_t>(used));
    run_.executable().set_count(Count::sequences, sequences);
    run_.executable().run();
    const std::vector<T> result = run_.template output<T>("o", capacity * out);
    for (std::size_t i = 0; i < used; ++i)
      std::copy_n(result.begin() + static_cast<std::ptrdiff_t>(i * out), out, o.begin() + step.rows[i] * sizes_.out());
    for (std::size_t i = used * out; i < result.size(); ++i)
      ASSERT_EQ(static_cast<double>(static_cast<float>(result[i])), 0.0);
  }

  std::int64_t chunk_;
  PageSizes sizes_;
  TestRun run_;
};

// Sets the columns of values from value_dim on, in rows of `width` whose last `values` columns are values, to zero.
template <class T>
void clear_padding(std::vector<T>& qkv, std::int64_t width, std::int64_t values, std::int64_t head_dim,
                   std::int64_t value_dim) {
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    const std::int64_t column = static_cast<std::int64_t>(i) % width - (width - values);
    if (column >= 0 && column % head_dim >= value_dim) qkv[i] = T(0.0F);
  }
}

template <class T>
void expect_as_attention(const PageSizes& sizes = {}) {
  std::vector<T> qkv = normal_values<T>(static_cast<std::size_t>(total_length() * sizes.width()), 4);
  clear_padding(qkv, sizes.width(), kKvHeads * sizes.head_dim, sizes.head_dim, sizes.value_dim);
  const std::vector<T> expected = whole(qkv, sizes);
  for (const std::int64_t chunk : {200, 64, 17, 1}) {
    EXPECT_TRUE(same_bits(Paged<T>(chunk, sizes).outputs(qkv), expected))
        << chunk << " rows at a time, heads of " << sizes.head_dim << ", pages of " << sizes.block_size;
  }
}

TEST(PagedAttention, BitsOfAttentionWholeChunkedAndOneByOne) {
  expect_as_attention<float>();
  expect_as_attention<BFloat16>();
  expect_as_attention<double>();
}

// Heads of 64 and 128, and of 192 with values of 128, have a dedicated kernel on Hopper.
TEST(PagedAttention, BitsOfAttentionWithPagesOfEverySize) {
  for (const std::int64_t head_dim : {64, 128}) {
    for (const std::int64_t block_size : {4, 8, 16, 32, 64}) {
      expect_as_attention<BFloat16>({.head_dim = head_dim, .block_size = block_size});
    }
  }
  for (const std::int64_t block_size : {4, 8, 16, 32, 64}) {
    expect_as_attention<BFloat16>({.head_dim = 192, .block_size = block_size, .value_dim = 128});
  }
}

// A sequence with more keys than a split of the GPU's kernel (4,096), in pages that are full from the start.
template <int kDim, int kValueDim = kDim>
class LongSequence {
 public:
  using T = BFloat16;
  static constexpr std::int64_t kLength = 4200, kRow = 4 * kDim, kResult = 2 * kDim;

  LongSequence() : qkv_(normal_values<T>(kLength * kRow, 6)) {
    clear_padding(qkv_, kRow, kDim, kDim, kValueDim);
    keys_.resize(kPages * kBlockSize * kDim);
    values_.resize(keys_.size());
    for (std::int64_t i = 0; i < kPages; ++i) table_.push_back(static_cast<std::int32_t>(i * 7 % kPages));
    for (std::int64_t i = 0; i < kLength; ++i) {
      const std::int64_t slot = table_[static_cast<std::size_t>(i / kBlockSize)] * kBlockSize + i % kBlockSize;
      std::copy_n(qkv_.begin() + i * kRow + 2 * kDim, kDim, keys_.begin() + slot * kDim);
      std::copy_n(qkv_.begin() + i * kRow + 3 * kDim, kDim, values_.begin() + slot * kDim);
    }
  }

  [[nodiscard]] const std::vector<T>& qkv() const { return qkv_; }

  [[nodiscard]] std::vector<T> whole() const {
    Program program;
    const Tensor qkv = program.input("qkv", {DTypeOf<T>::value, {kLength, kRow}});
    program.output("o",
                   attention(qkv, program.input("cu_seqlens", {DType::kI32, {2}}),
                             {.heads = 2, .kv_heads = 1, .head_dim = kDim, .scale = 0.35, .value_dim = kValueDim}));
    TestRun run(std::move(program));
    run.set("qkv", qkv_);
    run.set<std::int32_t>("cu_seqlens", {0, static_cast<std::int32_t>(kLength)});
    run.executable().run();
    return run.output<T>("o", kLength * kResult);
  }

  struct Part {
    std::int64_t first, count;
  };
  // The results of parts of the sequence, each as the new rows of a request.
  [[nodiscard]] std::vector<T> rows(const std::vector<Part>& parts) const {
    const std::int64_t requests = std::ssize(parts);
    std::vector<T> x;
    std::vector<std::int32_t> table, cu_seqlens{0}, starts;
    for (const auto& [first, count] : parts) {
      x.insert(x.end(), qkv_.begin() + first * kRow, qkv_.begin() + (first + count) * kRow);
      table.insert(table.end(), table_.begin(), table_.end());
      cu_seqlens.push_back(cu_seqlens.back() + static_cast<std::int32_t>(count));
      starts.push_back(static_cast<std::int32_t>(first));
    }
    Program program;
    const Type cache{DTypeOf<T>::value, {kPages, kBlockSize, kDim}};
    const Tensor qkv = program.input("qkv", {DTypeOf<T>::value, {cu_seqlens.back(), kRow}});
    const Tensor keys = program.input("keys", cache);
    const Tensor values = program.input("values", cache);
    program.output("o", paged_attention(qkv, keys, values, program.input("table", {DType::kI32, {requests, kPages}}),
                                        program.input("cu_seqlens", {DType::kI32, {requests + 1}}),
                                        program.input("starts", {DType::kI32, {requests}}),
                                        {.heads = 2,
                                         .kv_heads = 1,
                                         .head_dim = kDim,
                                         .scale = 0.35,
                                         .block_size = kBlockSize,
                                         .value_dim = kValueDim}));
    TestRun run(std::move(program));
    run.set("qkv", x);
    run.set("keys", keys_);
    run.set("values", values_);
    run.set("table", table);
    run.set("cu_seqlens", cu_seqlens);
    run.set("starts", starts);
    run.executable().run();
    return run.output<T>("o", static_cast<std::size_t>(cu_seqlens.back() * kResult));
  }

 private:
  static constexpr std::int64_t kPages = 263, kBlockSize = 16;
  std::vector<T> qkv_, keys_, values_;
  std::vector<std::int32_t> table_;
};

template <int kDim, int kValueDim = kDim>
void expect_parts_of_attention() {
  using Sequence = LongSequence<kDim, kValueDim>;
  const Sequence sequence;
  const std::vector<BFloat16> whole = sequence.whole();
  const auto part = [&](std::int64_t first, std::int64_t count) {
    return std::vector<BFloat16>(whole.begin() + first * Sequence::kResult,
                                 whole.begin() + (first + count) * Sequence::kResult);
  };
  EXPECT_TRUE(same_bits(sequence.rows({{0, Sequence::kLength}}), whole));
  EXPECT_TRUE(same_bits(sequence.rows({{4050, 100}}), part(4050, 100)));
  for (const std::int64_t row : {63, 4095, 4096, 4199}) {
    EXPECT_TRUE(same_bits(sequence.rows({{row, 1}}), part(row, 1))) << row;
  }
  // Requests of a few rows next to longer ones: among many rows, and among so few that the GPU's splits lie by rows.
  const std::vector<std::vector<typename Sequence::Part>> mixed{
      {{4199, 1}, {4050, 100}, {63, 1}, {4090, 8}, {4091, 9}, {70, 60}}, {{4199, 1}, {4090, 9}, {63, 1}, {4091, 8}}};
  for (const auto& parts : mixed) {
    std::vector<BFloat16> expected;
    for (const auto& [first, count] : parts) {
      const std::vector<BFloat16> rows = part(first, count);
      expected.insert(expected.end(), rows.begin(), rows.end());
    }
    EXPECT_TRUE(same_bits(sequence.rows(parts), expected));
  }
}

TEST(PagedAttention, BitsOfAttentionOverManyKeys) {
  expect_parts_of_attention<8>();
  expect_parts_of_attention<64>();
  expect_parts_of_attention<128>();
  expect_parts_of_attention<192, 128>();
}

// The f32 kernel gives the same numbers.
TEST(PagedAttention, NumbersOverManyKeys) {
  using Sequence = LongSequence<8>;
  const Sequence sequence;
  const std::vector<BFloat16> whole = sequence.whole();
  Program program;
  const Tensor qkv = program.input("qkv", {DType::kF32, {Sequence::kLength, Sequence::kRow}});
  program.output("o", attention(qkv, program.input("cu_seqlens", {DType::kI32, {2}}),
                                {.heads = 2, .kv_heads = 1, .head_dim = 8, .scale = 0.35}));
  TestRun run(std::move(program));
  run.set("qkv", std::vector<float>(sequence.qkv().begin(), sequence.qkv().end()));
  run.set<std::int32_t>("cu_seqlens", {0, static_cast<std::int32_t>(Sequence::kLength)});
  run.executable().run();
  const std::vector<float> expected = run.output<float>("o", whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ASSERT_NEAR(static_cast<float>(whole[i]), expected[i], 0.02F * std::max(1.0F, std::abs(expected[i]))) << i;
  }
}

TEST(PagedAttention, PageOutsideTheCacheIsADefect) {
  if (!test_device_throws()) GTEST_SKIP() << "kernels of a GPU throw nothing";
  Program program;
  const Dim requests(2, Count::sequences);
  const Tensor keys = program.state("k", {DType::kF32, {4, 16, 8}});
  program.output("o", paged_attention(program.input("qkv", {DType::kF32, {{2, Count::tokens}, 24}}), keys, keys,
                                      program.input("block_table", {DType::kI32, {requests, 3}}),
                                      program.input("cu_seqlens", {DType::kI32, {3}}),
                                      program.input("starts", {DType::kI32, {requests}}),
                                      {.heads = 1, .kv_heads = 1, .head_dim = 8, .block_size = 16}));
  TestRun run(std::move(program));
  run.set<std::int32_t>("cu_seqlens", {0, 1, 2});
  run.set<std::int32_t>("block_table", {3, 2, -1, 0, 4, -1});
  run.set<std::int32_t>("starts", {16, 15});  // the second sequence ends with its first page
  EXPECT_NO_THROW(run.executable().run());
  run.set<std::int32_t>("starts", {16, 16});
  EXPECT_THROW(run.executable().run(), Defect);
}

TEST(PagedAttention, RefusesPagesThatDoNotFit) {
  Program program;
  const Tensor qkv = program.input("qkv", {DType::kF32, {8, kRowWidth}});
  const Tensor keys = program.state("k", {DType::kF32, {4, 16, kKvHeads * kHeadDim}});
  const Tensor table = program.input("block_table", {DType::kI32, {{2, Count::sequences}, 3}});
  const Tensor cu_seqlens = program.input("cu_seqlens", {DType::kI32, {3}});
  const Tensor starts = program.input("starts", {DType::kI32, {{2, Count::sequences}}});
  const auto attend = [&](Tensor cu, std::int64_t block_size) {
    return paged_attention(qkv, keys, keys, table, cu, starts,
                           {.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim, .block_size = block_size});
  };
  EXPECT_NO_THROW((void)attend(cu_seqlens, 16));
  EXPECT_THROW((void)attend(cu_seqlens, 8), Error);
  EXPECT_THROW((void)attend(starts, 16), Error);
}

}  // namespace
}  // namespace hone::test
