// Tests of multi-head latent attention on packed documents and on a paged KV cache against its definition.
#include "model/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "ops/test_run.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

struct Sizes {
  std::int64_t heads, rank, nope, rope, value;
  [[nodiscard]] std::int64_t head_dim() const { return nope + rope; }
};
const std::vector<Sizes> kSizes{{.heads = 3, .rank = 10, .nope = 12, .rope = 4, .value = 8},
                                {.heads = 2, .rank = 24, .nope = 16, .rope = 8, .value = 16}};
constexpr double kScale = 0.3;
const std::vector<std::int32_t> kLengths{5, 70, 1, 33};

std::int32_t tokens_in_all() { return std::accumulate(kLengths.begin(), kLengths.end(), 0); }

std::vector<std::int32_t> document_starts() {
  std::vector<std::int32_t> starts{0};
  for (const std::int32_t length : kLengths) starts.push_back(starts.back() + length);
  return starts;
}

// The tensors of LatentHeads for all documents, one after the other.
template <class T>
struct Operands {
  std::vector<T> query, latent, rope_key, up;

  explicit Operands(const Sizes& s)
      : query(normal_values<T>(count(tokens_in_all(), s.heads * s.head_dim()), 1)),
        latent(normal_values<T>(count(tokens_in_all(), s.rank), 2)),
        rope_key(normal_values<T>(count(tokens_in_all(), s.rope), 3)),
        up(normal_values<T>(count(s.heads * (s.nope + s.value), s.rank), 4)) {
    for (T& value : up) value = static_cast<T>(static_cast<double>(static_cast<float>(value)) * 0.3);
  }

  static std::size_t count(std::int64_t rows, std::int64_t width) { return static_cast<std::size_t>(rows * width); }
};

std::vector<double> widened(const auto& values) {
  std::vector<double> wide;
  for (const auto value : values) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, BFloat16>) {
      wide.push_back(static_cast<double>(static_cast<float>(value)));
    } else {
      wide.push_back(static_cast<double>(value));
    }
  }
  return wide;
}

// Multi-head latent attention in f64 by its definition: every key and value is computed when it is read.
class Definition {
 public:
  Definition(const Sizes& s, const Operands<double>& in) : s_(s), in_(in) {}

  [[nodiscard]] std::vector<double> outputs() const {
    std::vector<double> all;
    for (std::size_t document = 0; document < kLengths.size(); ++document) {
      const std::int64_t first = document_starts()[document];
      for (std::int64_t row = first; row < first + kLengths[document]; ++row) {
        for (std::int64_t head = 0; head < s_.heads; ++head) attend(head, first, row, all);
      }
    }
    return all;
  }

 private:
  void attend(std::int64_t head, std::int64_t first, std::int64_t row, std::vector<double>& all) const {
    std::vector<double> weights;
    for (std::int64_t key = first; key <= row; ++key) weights.push_back(std::exp(kScale * score(head, row, key)));
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::int64_t i = 0; i < s_.value; ++i) {
      double o = 0;
      for (std::int64_t key = first; key <= row; ++key) {
        o += weights[static_cast<std::size_t>(key - first)] / sum * made(head, s_.nope + i, key);
      }
      all.push_back(o);
    }
  }
  [[nodiscard]] double score(std::int64_t head, std::int64_t row, std::int64_t key) const {
    const double* q = in_.query.data() + (row * s_.heads + head) * s_.head_dim();
    double sum = 0;
    for (std::int64_t i = 0; i < s_.nope; ++i) sum += q[i] * made(head, i, key);
    for (std::int64_t i = 0; i < s_.rope; ++i) sum += q[s_.nope + i] * in_.rope_key.data()[key * s_.rope + i];
    return sum;
  }
  // Element i of the product of `up` and a token's latent row for a head: the key's nope part, then the value.
  [[nodiscard]] double made(std::int64_t head, std::int64_t i, std::int64_t token) const {
    const double* row = in_.up.data() + (head * (s_.nope + s_.value) + i) * s_.rank;
    return std::inner_product(row, row + s_.rank, in_.latent.data() + token * s_.rank, 0.0);
  }

  const Sizes& s_;
  const Operands<double>& in_;
};

LatentHeads heads_of(Program& program, const Sizes& s, const Dim& rows, DType dtype) {
  return {.query = program.input("query", {dtype, {rows, s.heads * s.head_dim()}}),
          .latent = program.input("latent", {dtype, {rows, s.rank}}),
          .rope_key = program.input("rope_key", {dtype, {rows, s.rope}}),
          .up = program.weight("up", {dtype, {s.heads * (s.nope + s.value), s.rank}}),
          .heads = s.heads,
          .nope_dim = s.nope,
          .rope_dim = s.rope,
          .value_dim = s.value,
          .scale = kScale};
}

// A capacity larger than the number of tokens.
Capacity capacity() { return {.tokens = tokens_in_all() + 3, .sequences = static_cast<std::int64_t>(kLengths.size())}; }

template <class T>
std::vector<T> with_garbage_behind(std::vector<T> values, std::int64_t rows, std::int64_t width) {
  values.resize(static_cast<std::size_t>(rows * width), static_cast<T>(1e3f));
  return values;
}

template <class T>
void set_documents(TestRun& run, const Sizes& s, const Operands<T>& in) {
  const std::int64_t rows = capacity().tokens;
  run.set("query", with_garbage_behind(in.query, rows, s.heads * s.head_dim()));
  run.set("latent", with_garbage_behind(in.latent, rows, s.rank));
  run.set("rope_key", with_garbage_behind(in.rope_key, rows, s.rope));
  run.set_weight("up", in.up);
  run.set("cu_seqlens", document_starts());
  run.executable().set_count(Count::tokens, tokens_in_all());
}

template <class T>
std::vector<T> of_documents(const Sizes& s, const Operands<T>& in) {
  Program program;
  DocumentBatch batch(program, capacity());
  program.output("o", batch.attend(0, heads_of(program, s, batch.tokens.shape()[0], DTypeOf<T>::value)));
  TestRun run(std::move(program));
  set_documents(run, s, in);
  run.executable().run();
  return run.output<T>("o", Operands<T>::count(tokens_in_all(), s.heads * s.value));
}

template <class T>
void expect_as_defined(const Sizes& s, double tolerance) {
  const Operands<T> in(s);
  Operands<double> wide(s);
  wide.query = widened(in.query);
  wide.latent = widened(in.latent);
  wide.rope_key = widened(in.rope_key);
  wide.up = widened(in.up);
  const std::vector<double> expected = Definition(s, wide).outputs();
  const std::vector<double> o = widened(of_documents(s, in));
  ASSERT_EQ(o.size(), expected.size());
  for (std::size_t i = 0; i < o.size(); ++i) {
    ASSERT_NEAR(o[i], expected[i], tolerance) << name_of(DTypeOf<T>::value) << " at " << i << ", nope " << s.nope;
  }
}

TEST(LatentAttention, OfDocumentsIsAsDefined) {
  for (const Sizes& s : kSizes) {
    expect_as_defined<double>(s, 1e-12);
    expect_as_defined<float>(s, 2e-5);
    expect_as_defined<BFloat16>(s, 4e-2);
  }
}

// Central difference of sum(seed x output) of the definition when one operand moves along `direction`.
template <class Member>
double slope(const Sizes& s, const std::vector<double>& seed, Member member, const std::vector<double>& direction) {
  const auto objective = [&](double step) {
    Operands<double> moved(s);
    std::vector<double>& values = moved.*member;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += step * direction[i];
    const std::vector<double> o = Definition(s, moved).outputs();
    return std::inner_product(o.begin(), o.end(), seed.begin(), 0.0);
  };
  constexpr double kStep = 1e-5;
  return (objective(kStep) - objective(-kStep)) / (2 * kStep);
}

TEST(LatentAttention, GradientsAreThoseOfTheDefinition) {
  for (const Sizes& s : kSizes) {
    const Operands<double> in(s);
    Program program;
    DocumentBatch batch(program, capacity());
    const LatentHeads heads = heads_of(program, s, batch.tokens.shape()[0], DType::kF64);
    const Tensor o = batch.attend(0, heads);
    const GradientSeed seed{o, program.input("seed", o.type())};
    const std::vector<Tensor> wanted{heads.query, heads.latent, heads.rope_key};
    const std::vector<Tensor> gradients = append_gradients(program, std::span(&seed, 1), wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i) program.output("d" + wanted[i].value().name, gradients[i]);
    TestRun run(std::move(program));
    set_documents(run, s, in);
    std::vector<double> seeds = normal_values<double>(Operands<double>::count(tokens_in_all(), s.heads * s.value), 5);
    std::vector<double> padded = seeds;
    padded.resize(Operands<double>::count(capacity().tokens, s.heads * s.value), 0.0);
    run.set("seed", padded);
    run.executable().run();
    const auto expect_slope = [&](const std::string& name, auto member, const std::vector<double>& gradient) {
      const std::vector<double> direction = normal_values<double>((in.*member).size(), 6);
      const double along = std::inner_product(direction.begin(), direction.end(), gradient.begin(), 0.0);
      const double expected = slope(s, seeds, member, direction);
      EXPECT_NEAR(along, expected, 1e-6 * std::max(1.0, std::abs(expected))) << name << ", nope " << s.nope;
    };
    expect_slope("query", &Operands<double>::query, run.output<double>("dquery", in.query.size()));
    expect_slope("latent", &Operands<double>::latent, run.output<double>("dlatent", in.latent.size()));
    expect_slope("rope_key", &Operands<double>::rope_key, run.output<double>("drope_key", in.rope_key.size()));
    const std::vector<std::byte> bytes = run.gradient("up");
    std::vector<double> dup(in.up.size());
    ASSERT_EQ(bytes.size(), dup.size() * sizeof(double));
    std::memcpy(dup.data(), bytes.data(), bytes.size());
    expect_slope("up", &Operands<double>::up, dup);
  }
}

// Runs requests through a paged KV cache, `chunk` rows of each request per step.
template <class T>
class Pages {
 public:
  static constexpr std::int64_t kBlockSize = 16, kMaxBlocks = 5, kBlocks = 21;

  Pages(const Sizes& s, std::int64_t chunk, bool latent)
      : s_(s),
        chunk_(chunk),
        latent_(latent),
        rows_(chunk * static_cast<std::int64_t>(kLengths.size())),
        run_(program(s, rows_, latent)) {}

  [[nodiscard]] std::vector<T> outputs(const Operands<T>& in) {
    run_.set_weight("up", in.up);
    std::vector<T> o(Operands<T>::count(tokens_in_all(), s_.heads * s_.value));
    for (std::int64_t start = 0; start < *std::max_element(kLengths.begin(), kLengths.end()); start += chunk_) {
      step(start, in, o);
    }
    return o;
  }

 private:
  static Program program(const Sizes& s, std::int64_t rows, bool latent) {
    Program program;
    const KvLayout layout{.num_blocks = kBlocks, .block_size = kBlockSize, .max_blocks = kMaxBlocks, .latent = latent};
    PagedBatch batch(program, {.tokens = rows, .sequences = static_cast<std::int64_t>(kLengths.size())}, layout,
                     DTypeOf<T>::value);
    program.output("o", batch.attend(0, heads_of(program, s, batch.tokens.shape()[0], DTypeOf<T>::value)));
    return program;
  }

  // The KV-cache block of a sequence: distinct for all sequences and positions, and not consecutive.
  static std::int32_t page(std::size_t sequence, std::int64_t i) {
    return static_cast<std::int32_t>((static_cast<std::int64_t>(sequence) * kMaxBlocks + i) * 8 % kBlocks);
  }

  // Runs up to `chunk` rows from position `start` of each request that is long enough.
  void step(std::int64_t start, const Operands<T>& in, std::vector<T>& o) {
    std::vector<std::int32_t> rows, slots, cu_seqlens{0}, starts, block_table;
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      const std::int64_t end = std::min<std::int64_t>(kLengths[i], start + chunk_);
      if (start >= end) continue;
      for (std::int64_t position = start; position < end; ++position) {
        rows.push_back(static_cast<std::int32_t>(document_starts()[i] + position));
        slots.push_back(static_cast<std::int32_t>(page(i, position / kBlockSize) * kBlockSize + position % kBlockSize));
      }
      cu_seqlens.push_back(static_cast<std::int32_t>(rows.size()));
      starts.push_back(static_cast<std::int32_t>(start));
      for (std::int64_t block = 0; block < kMaxBlocks; ++block) block_table.push_back(page(i, block));
    }
    run_.executable().set_count(Count::tokens, static_cast<std::int64_t>(rows.size()));
    run_.executable().set_count(Count::sequences, static_cast<std::int64_t>(starts.size()));
    if (latent_) number_pages(block_table);
    // Fill entries past the counts with garbage, which must not be read.
    slots.resize(static_cast<std::size_t>(rows_), -1);
    starts.resize(kLengths.size(), 1 << 30);
    block_table.resize(kLengths.size() * kMaxBlocks, -1);
    cu_seqlens.resize(kLengths.size() + 1, cu_seqlens.back());
    run_.set("slots", slots);
    run_.set("cu_seqlens", cu_seqlens);
    run_.set("starts", starts);
    run_.set("block_table", block_table);
    run_.set("query", picked(in.query, rows, s_.heads * s_.head_dim()));
    run_.set("latent", picked(in.latent, rows, s_.rank));
    run_.set("rope_key", picked(in.rope_key, rows, s_.rope));
    run_.executable().run();
    const std::int64_t width = s_.heads * s_.value;
    const std::vector<T> result = run_.template output<T>("o", rows.size() * static_cast<std::size_t>(width));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(result.begin() + static_cast<std::int64_t>(i) * width, width, o.begin() + rows[i] * width);
    }
  }

  // Passes the blocks of the table in reverse order, and replaces them by their indices there.
  void number_pages(std::vector<std::int32_t>& block_table) {
    std::vector<std::int32_t> pages(block_table.rbegin(), block_table.rend());
    for (std::size_t i = 0; i < block_table.size(); ++i) {
      block_table[i] = static_cast<std::int32_t>(block_table.size() - 1 - i);
    }
    run_.executable().set_count(PagedBatch::page_count(), static_cast<std::int64_t>(pages.size()));
    pages.resize(kBlocks, -1);
    run_.set("pages", pages);
  }

  [[nodiscard]] std::vector<T> picked(const std::vector<T>& from, const std::vector<std::int32_t>& rows,
                                      std::int64_t width) const {
    std::vector<T> picked;
    for (const std::int32_t row : rows) {
      picked.insert(picked.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
    }
    return with_garbage_behind(picked, rows_, width);
  }

  const Sizes& s_;
  std::int64_t chunk_;
  bool latent_;
  std::int64_t rows_;  // capacity in rows
  TestRun run_;
};

template <class T>
void expect_bits_of_documents() {
  for (const Sizes& s : kSizes) {
    const Operands<T> in(s);
    const std::vector<T> expected = of_documents(s, in);
    for (const std::int64_t chunk : {80, 64, 17, 1}) {
      for (const bool latent : {false, true}) {
        EXPECT_TRUE(same_bits(Pages<T>(s, chunk, latent).outputs(in), expected))
            << chunk << " rows at a time, nope " << s.nope << (latent ? ", latent rows" : "");
      }
    }
  }
}

TEST(LatentAttention, OfPagesHasTheBitsOfDocuments) {
  expect_bits_of_documents<float>();
  expect_bits_of_documents<BFloat16>();
  expect_bits_of_documents<double>();
}

TEST(LatentAttention, RefusesValuesLongerThanKeys) {
  Program program;
  DocumentBatch batch(program, capacity());
  const Sizes sizes{.heads = 2, .rank = 8, .nope = 6, .rope = 4, .value = 11};
  const LatentHeads heads = heads_of(program, sizes, batch.tokens.shape()[0], DType::kF32);
  try {
    (void)batch.attend(0, heads);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("value_dim 11"), std::string::npos) << what;
    EXPECT_NE(what.find("head_dim 10"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace hone::test
