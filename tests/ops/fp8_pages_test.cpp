// FP8 pages: what kv_append and rope_append write, and attention over it, which has the bits of attention() over the
// numbers that the heads are rounded to.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/float8_head.h"
#include "ops/attention/attention.h"
#include "ops/kv_append/kv_append.h"
#include "ops/paged_attention/paged_attention.h"
#include "ops/registry.h"
#include "ops/rope_append/rope_append.h"
#include "ops/test_run.h"
#include "passes/fusion.h"
#include "support/device.h"

namespace hone::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Sizes of a cache and of the heads.
struct Fp8Sizes {
  std::int64_t heads = 4, kv_heads = 2, head_dim = 16, block_size = 16, value_dim = head_dim;
  std::int64_t positions = 192;  // of a sequence

  [[nodiscard]] std::int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  [[nodiscard]] std::int64_t row() const { return kv_heads * head_dim; }  // of keys
  [[nodiscard]] std::int64_t pages_a_sequence() const { return positions / block_size; }
  [[nodiscard]] KvAppendAttributes append() const {
    return {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
  }
  [[nodiscard]] Type pages(std::int64_t count) const { return {DType::kU8, {count, block_size, row()}}; }
  [[nodiscard]] Type scales(std::int64_t count) const { return {DType::kU8, {count, kv_heads * block_size}}; }
};

// The pages that `rows` of keys, each followed by its values, leave in slots; 0x5A where nothing is written.
template <class T>
struct WrittenPages {
  Bytes keys, values, key_scales, value_scales;

  WrittenPages(const Fp8Sizes& s, std::int64_t pages, const std::vector<T>& qkv, const std::vector<std::int32_t>& slots,
               std::int64_t rows)
      : keys(static_cast<std::size_t>(pages * s.block_size * s.row()), 0x5A),
        values(keys),
        key_scales(static_cast<std::size_t>(pages * s.block_size * s.kv_heads), 0x5A),
        value_scales(key_scales) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t slot = slots[static_cast<std::size_t>(row)];
      for (std::int64_t head = 0; head < s.kv_heads; ++head) {
        const T* key = qkv.data() + row * s.width() + (s.heads + head) * s.head_dim;
        const std::int64_t at = slot * s.row() + head * s.head_dim;
        const auto scale =
            static_cast<std::size_t>((slot / s.block_size * s.kv_heads + head) * s.block_size + slot % s.block_size);
        key_scales[scale] = quantize_head(key, s.head_dim, keys.data() + at);
        value_scales[scale] = quantize_head(key + s.row(), s.head_dim, values.data() + at);
      }
    }
  }
};

// Appends rows to pages that are 0x5A, rotated or not, by one operation or by two, and compares what is written.
template <class T>
void expect_written(const Fp8Sizes& s, bool rotates, bool fused) {
  register_operations();
  constexpr std::int64_t kRows = 6, kPages = 3;
  const std::vector<std::int32_t> slots{9, 0, 11, 4, 5, 1};
  Program program;
  const Dim rows(kRows, Count::tokens);
  Tensor qkv = program.input("qkv", {DTypeOf<T>::value, {rows, s.width()}});
  if (rotates) qkv = rope(qkv, program.input("table", {DType::kF32, {rows, s.head_dim}}), rope_of(s.append()));
  const KvPages pages = kv_append(qkv,
                                  {program.weight("k", s.pages(kPages)), program.weight("v", s.pages(kPages)),
                                   program.weight("ks", s.scales(kPages)), program.weight("vs", s.scales(kPages))},
                                  program.input("slots", {DType::kI32, {rows}}), s.append());
  program.output("qkv", qkv);
  program.output("k", pages.keys);
  program.output("v", pages.values);
  program.output("ks", pages.key_scales);
  program.output("vs", pages.value_scales);
  if (fused) program = fuse(program, FusionScope::kLayer);
  EXPECT_EQ(std::ssize(program.nodes()), rotates && !fused ? 2 : 1);
  TestRun run(std::move(program));
  std::vector<T> heads = normal_values<T>(static_cast<std::size_t>(kRows * s.width()), 1);
  for (std::size_t i = 0; i < heads.size(); ++i)  // scales that differ by row
    heads[i] = static_cast<T>(std::ldexp(static_cast<float>(heads[i]), static_cast<int>(i / 50 % 9)));
  run.set("qkv", heads);
  if (rotates) run.set("table", normal_values<float>(static_cast<std::size_t>(kRows * s.head_dim), 2));
  run.template set<std::int32_t>("slots", slots);
  for (const char* name : {"k", "v"})
    run.set_weight(name, Bytes(static_cast<std::size_t>(kPages * s.block_size * s.row()), 0x5A));
  for (const char* name : {"ks", "vs"})
    run.set_weight(name, Bytes(static_cast<std::size_t>(kPages * s.block_size * s.kv_heads), 0x5A));
  run.executable().set_count(Count::tokens, kRows - 1);
  run.executable().run();
  const WrittenPages<T> expected(s, kPages, run.template output<T>("qkv", heads.size()), slots, kRows - 1);
  EXPECT_EQ(run.template output<std::uint8_t>("k", expected.keys.size()), expected.keys);
  EXPECT_EQ(run.template output<std::uint8_t>("v", expected.values.size()), expected.values);
  EXPECT_EQ(run.template output<std::uint8_t>("ks", expected.key_scales.size()), expected.key_scales);
  EXPECT_EQ(run.template output<std::uint8_t>("vs", expected.value_scales.size()), expected.value_scales);
}

TEST(Fp8Pages, AreWrittenByHeads) {
  for (const std::int64_t head_dim : {8, 64, 128, 192, 256}) {
    const Fp8Sizes sizes{.head_dim = head_dim, .block_size = 4};
    for (const bool rotates : {false, true}) {
      expect_written<float>(sizes, rotates, false);
      expect_written<BFloat16>(sizes, rotates, false);
    }
    expect_written<float>(sizes, true, true);
    expect_written<BFloat16>(sizes, true, true);
  }
}

const std::vector<std::int32_t> kFp8Lengths{5, 150, 1, 64, 33};

std::vector<std::int32_t> first_rows() {
  std::vector<std::int32_t> rows{0};
  for (const std::int32_t length : kFp8Lengths) rows.push_back(rows.back() + length);
  return rows;
}

// Attention over whole sequences, whose keys and values have been rounded to FP8.
template <class T>
std::vector<T> rounded_whole(std::vector<T> qkv, const Fp8Sizes& s) {
  Bytes bytes(static_cast<std::size_t>(s.head_dim));
  for (std::int64_t at = 0; at < std::ssize(qkv); at += s.head_dim) {
    if (at % s.width() < s.heads * s.head_dim) continue;
    const std::uint8_t scale = quantize_head(qkv.data() + at, s.head_dim, bytes.data());
    dequantize_head(bytes.data(), scale, s.head_dim, qkv.data() + at);
  }
  const std::int64_t rows = std::ssize(qkv) / s.width();
  const std::vector<std::int32_t> cu_seqlens =
      rows == first_rows().back() ? first_rows() : std::vector<std::int32_t>{0, static_cast<std::int32_t>(rows)};
  Program program;
  program.output(
      "o",
      attention(
          program.input("qkv", {DTypeOf<T>::value, {rows, s.width()}}),
          program.input("cu_seqlens", {DType::kI32, {std::ssize(cu_seqlens)}}),
          {.heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .scale = 0.25, .value_dim = s.value_dim}));
  TestRun run(std::move(program));
  run.set("qkv", qkv);
  run.set("cu_seqlens", cu_seqlens);
  run.executable().run();
  return run.output<T>("o", static_cast<std::size_t>(rows * s.heads * s.head_dim));
}

// Sets the columns of values from value_dim on to zero.
template <class T>
void clear_padded_values(std::vector<T>& qkv, const Fp8Sizes& s) {
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    const std::int64_t column = static_cast<std::int64_t>(i) % s.width() - (s.heads + s.kv_heads) * s.head_dim;
    if (column >= 0 && column % s.head_dim >= s.value_dim) qkv[i] = T(0.0F);
  }
}

// A run of `sequences` sequences of at most `capacity` rows together, over pages whose bytes are 0xFF, NaN, before they
// are written.
template <class T>
class Fp8Paged {
 public:
  Fp8Paged(const Fp8Sizes& sizes, std::int64_t sequences, std::int64_t capacity)
      : s_(sizes), sequences_(sequences), capacity_(capacity), run_(program()) {
    for (const char* name : {"k", "v"}) fill(name, pages() * s_.block_size * s_.row());
    for (const char* name : {"ks", "vs"}) fill(name, pages() * s_.block_size * s_.kv_heads);
  }

  // Takes the pages of another run with the same sizes.
  void copy_pages(Fp8Paged& other) {
    for (const char* name : {"k", "v", "ks", "vs"}) run_.states().upload(name, other.run_.states().download(name));
  }

  // Appends positions [start, end) of each sequence, [first_row[s] + start, ...) of qkv, and writes their results to o.
  void step(const std::vector<T>& qkv, std::span<const std::int32_t> first_row, std::span<const std::int32_t> starts,
            std::span<const std::int32_t> ends, std::vector<T>& o) {
    const auto out = static_cast<std::size_t>(s_.heads * s_.head_dim);
    std::vector<std::int32_t> rows, slots, cu_seqlens{0}, begun, table;
    for (std::size_t s = 0; s < starts.size(); ++s) {
      if (starts[s] >= ends[s]) continue;
      for (std::int32_t position = starts[s]; position < ends[s]; ++position) {
        rows.push_back(first_row[s] + position);
        slots.push_back(page(s, position / s_.block_size) * static_cast<std::int32_t>(s_.block_size) +
                        position % static_cast<std::int32_t>(s_.block_size));
      }
      cu_seqlens.push_back(static_cast<std::int32_t>(rows.size()));
      begun.push_back(starts[s]);
      for (std::int64_t i = 0; i < s_.pages_a_sequence(); ++i) table.push_back(page(s, i));
    }
    run_.executable().set_count(Count::tokens, std::ssize(rows));
    run_.executable().set_count(Count::sequences, std::ssize(begun));
    std::vector<T> x(static_cast<std::size_t>(capacity_ * s_.width()), static_cast<T>(1e3F));
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::copy_n(qkv.begin() + rows[i] * s_.width(), s_.width(),
                  x.begin() + static_cast<std::ptrdiff_t>(i) * s_.width());
    slots.resize(static_cast<std::size_t>(capacity_), -1);
    cu_seqlens.resize(static_cast<std::size_t>(sequences_) + 1, cu_seqlens.back());
    begun.resize(static_cast<std::size_t>(sequences_), 1 << 30);
    table.resize(static_cast<std::size_t>(sequences_ * s_.pages_a_sequence()), -1);
    run_.set("qkv", x);
    run_.set("slots", slots);
    run_.set("cu_seqlens", cu_seqlens);
    run_.set("starts", begun);
    run_.set("block_table", table);
    run_.executable().run();
    const std::vector<T> result = run_.template output<T>("o", static_cast<std::size_t>(capacity_) * out);
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::copy_n(result.begin() + static_cast<std::ptrdiff_t>(i * out), out,
                  o.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rows[i]) * out));
  }

 private:
  [[nodiscard]] std::int64_t pages() const { return sequences_ * s_.pages_a_sequence() + 1; }
  [[nodiscard]] std::int32_t page(std::size_t sequence, std::int64_t i) const {  // never the same page twice
    const std::int64_t at = static_cast<std::int64_t>(sequence) * s_.pages_a_sequence() + i;
    return static_cast<std::int32_t>(pages() - 1 - at);
  }
  void fill(const char* name, std::int64_t size) {
    run_.states().upload(name,
                         std::as_bytes(std::span<const std::uint8_t>(Bytes(static_cast<std::size_t>(size), 0xFF))));
  }
  [[nodiscard]] Program program() const {
    Program program;
    const Dim rows(capacity_, Count::tokens);
    const Dim requests(sequences_, Count::sequences);
    const Tensor qkv = program.input("qkv", {DTypeOf<T>::value, {rows, s_.width()}});
    const KvPages kept = kv_append(qkv,
                                   {program.state("k", s_.pages(pages())), program.state("v", s_.pages(pages())),
                                    program.state("ks", s_.scales(pages())), program.state("vs", s_.scales(pages()))},
                                   program.input("slots", {DType::kI32, {rows}}), s_.append());
    program.output(
        "o", paged_attention(qkv, kept, program.input("block_table", {DType::kI32, {requests, s_.pages_a_sequence()}}),
                             program.input("cu_seqlens", {DType::kI32, {sequences_ + 1}}),
                             program.input("starts", {DType::kI32, {requests}}),
                             {.heads = s_.heads,
                              .kv_heads = s_.kv_heads,
                              .head_dim = s_.head_dim,
                              .scale = 0.25,
                              .block_size = s_.block_size,
                              .value_dim = s_.value_dim}));
    return program;
  }

  Fp8Sizes s_;
  std::int64_t sequences_, capacity_;
  TestRun run_;
};

template <class T>
void expect_rounded_attention(const Fp8Sizes& s) {
  const std::vector<std::int32_t> first = first_rows();
  std::vector<T> qkv = normal_values<T>(static_cast<std::size_t>(first.back() * s.width()), 4);
  clear_padded_values(qkv, s);
  const std::vector<T> expected = rounded_whole(qkv, s);
  for (const std::int32_t chunk : {200, 64, 17, 1}) {
    Fp8Paged<T> paged(s, std::ssize(kFp8Lengths), std::int64_t{chunk} * std::ssize(kFp8Lengths));
    std::vector<T> o(expected.size());
    for (std::int32_t start = 0; start < 150; start += chunk) {
      std::vector<std::int32_t> ends;
      for (const std::int32_t length : kFp8Lengths) ends.push_back(std::min(length, start + chunk));
      paged.step(qkv, first, std::vector<std::int32_t>(kFp8Lengths.size(), start), ends, o);
    }
    EXPECT_TRUE(same_bits(o, expected)) << chunk << " rows together, heads of " << s.head_dim << ", pages of "
                                        << s.block_size << ", " << s.heads << " heads";
  }
}

TEST(Fp8Pages, AttentionHasTheBitsOfRoundedHeads) {
  for (const std::int64_t head_dim : {8, 16, 256}) {
    expect_rounded_attention<float>({.head_dim = head_dim});
    expect_rounded_attention<BFloat16>({.head_dim = head_dim});
  }
  for (const std::int64_t head_dim : {64, 128}) {
    for (const std::int64_t block_size : {4, 8, 16, 32, 64}) {
      expect_rounded_attention<BFloat16>({.head_dim = head_dim, .block_size = block_size});
    }
    // More query heads to a key head than the kernel of few rows takes, and as many.
    expect_rounded_attention<BFloat16>({.heads = 24, .head_dim = head_dim, .block_size = 32});
    expect_rounded_attention<BFloat16>({.heads = 16, .head_dim = head_dim, .block_size = 32});
  }
  for (const std::int64_t block_size : {4, 32}) {
    expect_rounded_attention<BFloat16>({.head_dim = 192, .block_size = block_size, .value_dim = 128});
  }
}

// More keys than a split of the GPU's kernels has (4,096).
TEST(Fp8Pages, AttentionOverManyKeysHasTheBitsOfRoundedHeads) {
  constexpr std::int32_t kLength = 4200;
  for (const auto& [head_dim, value_dim] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 8}, {64, 64}, {128, 128}, {192, 128}}) {
    const Fp8Sizes s{
        .heads = 2, .kv_heads = 1, .head_dim = head_dim, .block_size = 32, .value_dim = value_dim, .positions = 4224};
    std::vector<BFloat16> qkv = normal_values<BFloat16>(static_cast<std::size_t>(kLength * s.width()), 6);
    clear_padded_values(qkv, s);
    // Some values with scales above 2^7, for which the GPU's kernel has other code, and some of zeros.
    for (std::int64_t row = 1000; row < 1400; ++row) {
      for (std::int64_t i = 1; i <= s.head_dim; ++i) {
        BFloat16& value = qkv[static_cast<std::size_t>((row + 1) * s.width() - i)];
        value = BFloat16(row < 1200 ? static_cast<float>(value) * 0x1p20F : 0.0F);
      }
    }
    const std::vector<BFloat16> expected = rounded_whole(qkv, s);
    Fp8Paged<BFloat16> chunked(s, 1, 1024);
    Fp8Paged<BFloat16> prompt(s, 1, 4090);
    Fp8Paged<BFloat16> tokens(s, 1, 1);  // with kernels for few rows
    std::vector<BFloat16> of_chunks(expected.size()), of_tokens(expected.size());
    const auto advance = [&](Fp8Paged<BFloat16>& paged, std::int32_t start, std::int32_t end,
                             std::vector<BFloat16>& o) {
      paged.step(qkv, std::vector<std::int32_t>{0}, std::vector<std::int32_t>{start}, std::vector<std::int32_t>{end},
                 o);
    };
    for (std::int32_t start = 0; start < kLength; start += 1000)
      advance(chunked, start, std::min(start + 1000, kLength), of_chunks);
    EXPECT_TRUE(same_bits(of_chunks, expected)) << "heads of " << head_dim;
    advance(prompt, 0, 4090, of_tokens);
    tokens.copy_pages(prompt);
    for (std::int32_t start = 4090; start < kLength; ++start) advance(tokens, start, start + 1, of_tokens);
    EXPECT_TRUE(same_bits(of_tokens, expected)) << "heads of " << head_dim << ", token by token";
    // A sequence that decodes next to a prompt.
    std::vector<BFloat16> two = qkv;
    two.insert(two.end(), qkv.begin(), qkv.end());
    Fp8Paged<BFloat16> mixed(s, 2, 4200);
    std::vector<BFloat16> of_both(2 * expected.size());
    const auto advance_both = [&](std::array<std::int32_t, 2> starts, std::array<std::int32_t, 2> ends) {
      mixed.step(two, std::vector<std::int32_t>{0, kLength}, starts, ends, of_both);
    };
    advance_both({0, 0}, {4094, 60});
    for (std::int32_t i = 0; i < 6; ++i) advance_both({4094 + i, 60 + 690 * i}, {4095 + i, 750 + 690 * i});
    advance_both({4100, 0}, {kLength, 0});
    for (const auto from : {of_both.begin(), of_both.begin() + std::ssize(expected)}) {
      EXPECT_TRUE(same_bits(std::vector<BFloat16>(from, from + std::ssize(expected)), expected))
          << "heads of " << head_dim << ", next to another sequence";
    }
  }
}

TEST(Fp8Pages, ThatDoNotFitAreRefused) {
  Program program;
  const Fp8Sizes s;
  const Tensor qkv = program.input("qkv", {DType::kF32, {8, s.width()}});
  const Tensor wide = program.input("wide", {DType::kF64, {8, s.width()}});
  const Tensor slots = program.input("slots", {DType::kI32, {8}});
  const Tensor keys = program.state("k", s.pages(4));
  const Tensor scales = program.state("ks", s.scales(4));
  const Tensor short_scales = program.state("short", s.scales(3));
  EXPECT_NO_THROW((void)kv_append(qkv, {keys, keys, scales, scales}, slots, s.append()));
  EXPECT_THROW((void)kv_append(qkv, {keys, keys, scales, short_scales}, slots, s.append()), Error);
  EXPECT_THROW((void)kv_append(wide, {keys, keys, scales, scales}, slots, s.append()), Error);
  EXPECT_THROW((void)kv_append(qkv, {keys, keys, {}, {}}, slots, s.append()), Error);
}

}  // namespace
}  // namespace hone::test
