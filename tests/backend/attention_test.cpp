#include "backend/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"
#include "support/bits.h"

namespace hone {
namespace {

using Lengths = std::vector<std::int32_t>;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

Lengths running_sum(const Lengths& lengths) {
  Lengths sums{0};
  for (const std::int32_t length : lengths) sums.push_back(sums.back() + length);
  return sums;
}

// Random q, k and v of a few packed sequences in one buffer [capacity, (heads + 2 kv_heads) * head_dim]. The rows past
// the last token are NaN.
template <class T>
struct Problem {
  using Real = Accumulator<T>;
  AttentionShape shape;
  Lengths lengths, cu_seqlens;
  std::int64_t tokens, capacity, width;
  std::vector<T> qkv, grad_o;

  Problem(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim, Lengths sequence_lengths, unsigned seed = 1)
      : shape{heads, kv_heads, head_dim, 1.0 / std::sqrt(static_cast<double>(head_dim))},
        lengths(std::move(sequence_lengths)),
        cu_seqlens(running_sum(lengths)),
        tokens(cu_seqlens.back()),
        capacity(tokens + 3),
        width((heads + 2 * kv_heads) * head_dim) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < capacity * width; ++i) qkv.push_back(T(static_cast<float>(normal(engine))));
    for (std::int64_t i = 0; i < capacity * heads * head_dim; ++i)
      grad_o.push_back(T(static_cast<float>(normal(engine))));
    std::fill(qkv.begin() + tokens * width, qkv.end(), T(std::numeric_limits<float>::quiet_NaN()));
  }

  [[nodiscard]] std::int64_t q_at(std::int64_t t, std::int64_t h) const { return t * width + h * shape.head_dim; }
  [[nodiscard]] std::int64_t k_at(std::int64_t t, std::int64_t h) const { return q_at(t, shape.num_heads + h); }
  [[nodiscard]] std::int64_t v_at(std::int64_t t, std::int64_t h) const { return k_at(t, shape.num_kv_heads + h); }
  [[nodiscard]] std::int64_t o_width() const { return shape.num_heads * shape.head_dim; }
};

template <class T>
struct Forward {
  std::vector<T> o;
  std::vector<Accumulator<T>> lse;
};

template <class T>
Forward<T> forward(const Problem<T>& p, int threads = 2) {
  Forward<T> out{std::vector<T>(index(p.capacity * p.o_width()), T(7.0F)),
                 std::vector<Accumulator<T>>(index(p.capacity * p.shape.num_heads), 7)};
  std::vector<std::byte> workspace(attention_workspace_bytes<T>(p.shape, threads));
  const int before = thread_count();
  set_thread_count(threads);
  attention_forward<T>({.queries = {.shape = p.shape,
                                    .cu_seqlens = p.cu_seqlens,
                                    .capacity = p.capacity,
                                    .q = {p.qkv.data(), p.width},
                                    .o = {out.o.data(), p.o_width()},
                                    .lse = out.lse.data(),
                                    .workspace = workspace},
                        .k = {p.qkv.data() + p.k_at(0, 0), p.width},
                        .v = {p.qkv.data() + p.v_at(0, 0), p.width}});
  set_thread_count(before);
  return out;
}

// Computes attention by its definition in double precision.
template <class T>
Forward<double> reference(const Problem<T>& p) {
  const auto& s = p.shape;
  Forward<double> out{std::vector<double>(index(p.capacity * p.o_width())),
                      std::vector<double>(index(p.capacity * s.num_heads))};
  for (std::size_t sequence = 0; sequence < p.lengths.size(); ++sequence) {
    for (std::int64_t t = p.cu_seqlens[sequence]; t < p.cu_seqlens[sequence + 1]; ++t) {
      for (std::int64_t h = 0; h < s.num_heads; ++h) {
        const std::int64_t kv = h / (s.num_heads / s.num_kv_heads);
        std::vector<double> weights;
        double sum = 0.0;
        for (std::int64_t u = p.cu_seqlens[sequence]; u <= t; ++u) {
          double score = 0.0;
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            score += static_cast<double>(static_cast<Accumulator<T>>(p.qkv[index(p.q_at(t, h) + d)])) *
                     static_cast<double>(static_cast<Accumulator<T>>(p.qkv[index(p.k_at(u, kv) + d)]));
          }
          weights.push_back(std::exp(score * s.scale));
          sum += weights.back();
        }
        for (std::size_t u = 0; u < weights.size(); ++u) {
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            out.o[index(t * p.o_width() + h * s.head_dim + d)] +=
                weights[u] / sum *
                static_cast<double>(static_cast<Accumulator<T>>(
                    p.qkv[index(p.v_at(p.cu_seqlens[sequence] + static_cast<std::int64_t>(u), kv) + d)]));
          }
        }
        out.lse[index(t * s.num_heads + h)] = std::log(sum);
      }
    }
  }
  return out;
}

template <class T>
void expect_near_reference(const Problem<T>& p, double relative) {
  const auto result = forward(p);
  const auto truth = reference(p);
  for (std::size_t i = 0; i < truth.o.size(); ++i) {
    const auto value = static_cast<double>(static_cast<Accumulator<T>>(result.o[i]));
    ASSERT_NEAR(value, truth.o[i], relative * (1.0 + std::fabs(truth.o[i]))) << i;
  }
  for (std::size_t i = 0; i < truth.lse.size(); ++i)
    ASSERT_NEAR(result.lse[i], truth.lse[i], std::min(relative, 1e-6) * 10) << i;
}

const Lengths kLengths{1, 70, 0, 5, 64, 129, 0};

TEST(Attention, MatchesTheDefinition) {
  const std::int64_t shapes[][3] = {{4, 4, 64},  {4, 1, 32},  {6, 2, 40}, {7, 1, 8},
                                    {2, 2, 128}, {14, 2, 16}, {1, 1, 256}};
  for (const auto& s : shapes) {
    SCOPED_TRACE(testing::Message() << s[0] << " heads on " << s[1] << " of " << s[2]);
    expect_near_reference(Problem<float>(s[0], s[1], s[2], kLengths), 2e-6);
    expect_near_reference(Problem<BFloat16>(s[0], s[1], s[2], kLengths), 4e-3);
    expect_near_reference(Problem<double>(s[0], s[1], s[2], kLengths), 1e-13);
  }
}

TEST(Attention, RowsPastTheEndAreZero) {
  const Problem<float> p(4, 2, 16, {3, 20});
  const auto result = forward(p);
  for (std::int64_t i = p.tokens * p.o_width(); i < p.capacity * p.o_width(); ++i) EXPECT_EQ(result.o[index(i)], 0.0F);
  for (std::int64_t i = p.tokens * 4; i < p.capacity * 4; ++i) EXPECT_EQ(result.lse[index(i)], 0.0F);
}

TEST(Attention, LargeScoresStayFinite) {
  Problem<float> p(2, 1, 16, {100});
  for (std::int64_t i = 0; i < p.tokens * p.width; ++i) p.qkv[index(i)] *= 100.0F;
  for (const float value : forward(p).o) ASSERT_TRUE(std::isfinite(value));
}

template <class T>
void expect_independent() {
  const Problem<T> p(6, 2, 40, kLengths);
  const auto whole = forward(p, 1);
  for (const int threads : {2, 3, 8}) {
    const auto other = forward(p, threads);
    EXPECT_TRUE(test::same_bits(other.o, whole.o) && test::same_bits(other.lse, whole.lse)) << threads;
  }
  // The same bits for a sequence that is computed alone.
  Problem<T> alone(6, 2, 40, {129});
  const std::int64_t first = p.cu_seqlens[5];
  std::copy_n(p.qkv.begin() + first * p.width, 129 * p.width, alone.qkv.begin());
  const auto one = forward(alone);
  EXPECT_EQ(0, std::memcmp(one.o.data(), whole.o.data() + first * p.o_width(), index(129 * p.o_width()) * sizeof(T)));
  // The same bits for the beginning of that sequence, followed by NaN keys.
  Problem<T> beginning(6, 2, 40, {77});
  std::copy_n(alone.qkv.begin(), 77 * p.width, beginning.qkv.begin());
  const auto part = forward(beginning);
  EXPECT_EQ(0, std::memcmp(part.o.data(), one.o.data(), index(77 * p.o_width()) * sizeof(T)));
}

TEST(Attention, BitsDependOnTheRowsOwnSequenceOnly) {
  expect_independent<float>();
  expect_independent<BFloat16>();
  expect_independent<double>();
}

TEST(Attention, LaterKeysNeverTouchARow) {
  Problem<float> p(2, 1, 16, {80});
  const auto before = forward(p);
  for (std::int64_t t = 50; t < 80; ++t) {
    for (std::int64_t d = 0; d < 16; ++d) {
      p.qkv[index(p.k_at(t, 0) + d)] = std::numeric_limits<float>::quiet_NaN();
      p.qkv[index(p.v_at(t, 0) + d)] = std::numeric_limits<float>::infinity();
    }
  }
  const auto after = forward(p);
  EXPECT_EQ(0, std::memcmp(before.o.data(), after.o.data(), index(50 * p.o_width()) * sizeof(float)));
  EXPECT_TRUE(std::isnan(after.o[index(50 * p.o_width())]));
}

// Computes every sequence in chunks of up to `chunk` tokens with a paged cache whose pages are assigned in descending
// order.
template <class T>
Forward<T> forward_paged(const Problem<T>& p, std::int32_t chunk) {
  constexpr std::int64_t kBlockSize = 16;
  const auto& s = p.shape;
  std::int64_t max_blocks = 0;
  for (const auto length : p.lengths) max_blocks = std::max(max_blocks, (length + kBlockSize - 1) / kBlockSize);
  const auto sequences = static_cast<std::int64_t>(p.lengths.size());
  const std::int64_t num_blocks = sequences * max_blocks;
  std::vector<std::int32_t> table(index(num_blocks));
  for (std::int64_t i = 0; i < num_blocks; ++i) table[index(i)] = static_cast<std::int32_t>(num_blocks - 1 - i);
  const std::int64_t row = s.num_kv_heads * s.head_dim;
  const T garbage(std::numeric_limits<float>::quiet_NaN());
  std::vector<T> keys(index(num_blocks * kBlockSize * row), garbage), values(keys);
  Forward<T> out{std::vector<T>(index(p.capacity * p.o_width())),
                 std::vector<Accumulator<T>>(index(p.capacity * s.num_heads))};
  std::vector<std::byte> workspace(attention_workspace_bytes<T>(s, 2));
  for (std::int32_t start = 0; start < *std::max_element(p.lengths.begin(), p.lengths.end()); start += chunk) {
    Lengths counts, starts;
    std::vector<T> q;
    std::vector<std::int64_t> tokens;
    for (std::size_t sequence = 0; sequence < p.lengths.size(); ++sequence) {
      const std::int32_t begin = std::min(start, p.lengths[sequence]);
      const std::int32_t end = std::min(start + chunk, p.lengths[sequence]);
      counts.push_back(end - begin);
      starts.push_back(begin);
      for (std::int32_t position = begin; position < end; ++position) {
        const std::int64_t token = p.cu_seqlens[sequence] + position;
        tokens.push_back(token);
        q.insert(q.end(), p.qkv.begin() + p.q_at(token, 0), p.qkv.begin() + p.q_at(token, s.num_heads));
        const std::int64_t page = table[sequence * index(max_blocks) + index(position / kBlockSize)];
        const std::int64_t slot = (page * kBlockSize + position % kBlockSize) * row;
        std::copy_n(p.qkv.begin() + p.k_at(token, 0), row, keys.begin() + slot);
        std::copy_n(p.qkv.begin() + p.v_at(token, 0), row, values.begin() + slot);
      }
    }
    const Lengths cu_seqlens = running_sum(counts);
    std::vector<T> o(q.size());
    std::vector<Accumulator<T>> lse(tokens.size() * index(s.num_heads));
    paged_attention_forward<T>({.queries = {.shape = s,
                                            .cu_seqlens = cu_seqlens,
                                            .capacity = cu_seqlens.back(),
                                            .q = {q.data(), p.o_width()},
                                            .o = {o.data(), p.o_width()},
                                            .lse = lse.data(),
                                            .workspace = workspace},
                                .k_cache = keys.data(),
                                .v_cache = values.data(),
                                .num_blocks = num_blocks,
                                .block_size = kBlockSize,
                                .block_table = table,
                                .max_blocks = max_blocks,
                                .start = starts});
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::copy_n(o.begin() + static_cast<std::int64_t>(i) * p.o_width(), p.o_width(),
                  out.o.begin() + tokens[i] * p.o_width());
      std::copy_n(lse.begin() + static_cast<std::int64_t>(i) * s.num_heads, s.num_heads,
                  out.lse.begin() + tokens[i] * s.num_heads);
    }
  }
  return out;
}

template <class T>
void expect_paged_equals_plain(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  const Problem<T> p(heads, kv_heads, head_dim, kLengths);
  const auto plain = forward(p);
  for (const std::int32_t chunk : {1000, 64, 37, 1}) {
    const auto paged = forward_paged(p, chunk);
    EXPECT_TRUE(test::same_bits(paged.o, plain.o))
        << heads << "/" << kv_heads << "x" << head_dim << " chunks of " << chunk;
    EXPECT_TRUE(test::same_bits(paged.lse, plain.lse))
        << heads << "/" << kv_heads << "x" << head_dim << " chunks of " << chunk;
  }
}

TEST(Attention, PagesWholeInChunksAndOneByOneGiveTheSameBits) {
  expect_paged_equals_plain<float>(4, 4, 64);
  expect_paged_equals_plain<float>(14, 2, 24);
  expect_paged_equals_plain<BFloat16>(6, 2, 40);
  expect_paged_equals_plain<double>(3, 1, 8);
}

template <class T>
std::vector<T> backward(const Problem<T>& p, const Forward<T>& f, int threads = 2) {
  std::vector<T> grad(p.qkv.size(), T(9.0F));
  std::int64_t longest = 0;
  for (const auto length : p.lengths) longest = std::max<std::int64_t>(longest, length);
  std::vector<std::byte> workspace(attention_backward_workspace_bytes<T>(p.shape, longest, threads));
  const int before = thread_count();
  set_thread_count(threads);
  attention_backward<T>({.shape = p.shape,
                         .cu_seqlens = p.cu_seqlens,
                         .capacity = p.capacity,
                         .q = {p.qkv.data(), p.width},
                         .k = {p.qkv.data() + p.k_at(0, 0), p.width},
                         .v = {p.qkv.data() + p.v_at(0, 0), p.width},
                         .o = {f.o.data(), p.o_width()},
                         .grad_o = {p.grad_o.data(), p.o_width()},
                         .lse = f.lse.data(),
                         .grad_q = {grad.data(), p.width},
                         .grad_k = {grad.data() + p.k_at(0, 0), p.width},
                         .grad_v = {grad.data() + p.v_at(0, 0), p.width},
                         .workspace = workspace});
  set_thread_count(before);
  return grad;
}

TEST(Attention, GradientMatchesFiniteDifferences) {
  Problem<double> p(4, 2, 8, {1, 0, 70, 6});
  const auto grad = backward(p, forward(p));
  const auto loss = [&] {
    const auto f = forward(p, 1);
    double sum = 0.0;
    for (std::int64_t i = 0; i < p.tokens * p.o_width(); ++i) sum += f.o[index(i)] * p.grad_o[index(i)];
    return sum;
  };
  constexpr double kStep = 1e-5;
  for (std::int64_t i = 0; i < p.tokens * p.width; i += 7) {
    const double value = p.qkv[index(i)];
    p.qkv[index(i)] = value + kStep;
    const double above = loss();
    p.qkv[index(i)] = value - kStep;
    const double below = loss();
    p.qkv[index(i)] = value;
    ASSERT_NEAR(grad[index(i)], (above - below) / (2 * kStep), 1e-8)
        << "token " << i / p.width << " column " << i % p.width;
  }
}

// A rank's share of two documents, of 150 and 40 tokens: pieces of the first one, which the second one's separates in
// the rows, and the results of a rank that has them. Gradients, which are summed in another order, are within the
// tolerance; their sums over the ranks within twice that.
template <class T>
void expect_pieces_equal_documents(int heads, int kv_heads, int head_dim, double tolerance = 1e-5) {
  const Problem<T> p(heads, kv_heads, head_dim, {150, 40});
  const Forward<T> whole = forward(p);
  const std::vector<T> whole_gradient = backward(p, whole);
  const std::int64_t keys_width = 2 * p.shape.num_kv_heads * p.shape.head_dim;
  std::vector<double> sums(index(p.tokens * keys_width), 0);  // over the ranks
  const auto wide = [](T value) { return static_cast<double>(static_cast<Accumulator<T>>(value)); };
  struct Rank {
    std::vector<std::int32_t> bounds, starts, keys, of, tokens;
  };
  const auto range = [](std::int32_t begin, std::int32_t end) {
    std::vector<std::int32_t> all;
    for (std::int32_t i = begin; i < end; ++i) all.push_back(i);
    return all;
  };
  const auto joined = [](std::vector<std::int32_t> a, const std::vector<std::int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const std::vector<Rank> ranks{
      {{0, 37, 67, 80},
       {0, 120, 27},
       {0, 0, 150},
       {0, 2, 3},
       joined(joined(range(0, 37), range(120, 150)), range(177, 190))},
      {{0, 83, 110, 110}, {37, 0, 0}, {0, 150, 0}, {0, 1, 2}, joined(range(37, 120), range(150, 177))}};
  for (const Rank& rank : ranks) {
    const auto rows = static_cast<std::int64_t>(rank.tokens.size());
    const std::int64_t capacity = rows + 2;
    std::vector<T> qkv(index(capacity * p.width), T(std::numeric_limits<float>::quiet_NaN()));
    std::vector<T> keys(index((p.tokens + 5) * keys_width), T(std::numeric_limits<float>::quiet_NaN()));
    std::vector<T> grad_o(index(capacity * p.o_width()), T(0.0F));
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t token = rank.tokens[index(r)];
      std::copy_n(p.qkv.begin() + token * p.width, p.o_width(), qkv.begin() + r * p.width);
      std::copy_n(p.grad_o.begin() + token * p.o_width(), p.o_width(), grad_o.begin() + r * p.o_width());
    }
    for (std::int64_t t = 0; t < p.tokens; ++t) {
      std::copy_n(p.qkv.begin() + p.k_at(t, 0), keys_width, keys.begin() + t * keys_width);
    }
    const AttentionPieces pieces{.starts = rank.starts,
                                 .key_rows = rank.keys,
                                 .documents = p.cu_seqlens,
                                 .of = rank.of,
                                 .key_capacity = p.tokens + 5};
    Forward<T> part{std::vector<T>(index(capacity * p.o_width()), T(7.0F)),
                    std::vector<Accumulator<T>>(index(capacity * p.shape.num_heads), 7)};
    std::vector<std::byte> workspace(attention_backward_workspace_bytes<T>(p.shape, p.tokens, 2));
    const T* const values = keys.data() + p.shape.num_kv_heads * p.shape.head_dim;
    attention_forward<T>({.queries = {.shape = p.shape,
                                      .cu_seqlens = rank.bounds,
                                      .capacity = capacity,
                                      .q = {qkv.data(), p.width},
                                      .o = {part.o.data(), p.o_width()},
                                      .lse = part.lse.data(),
                                      .workspace = workspace},
                          .k = {keys.data(), keys_width},
                          .v = {values, keys_width},
                          .pieces = pieces});
    std::vector<T> grad_qkv(qkv.size(), T(9.0F));
    std::vector<T> grad_keys(keys.size(), T(9.0F));
    attention_backward<T>({.shape = p.shape,
                           .cu_seqlens = rank.bounds,
                           .capacity = capacity,
                           .q = {qkv.data(), p.width},
                           .k = {keys.data(), keys_width},
                           .v = {values, keys_width},
                           .o = {part.o.data(), p.o_width()},
                           .grad_o = {grad_o.data(), p.o_width()},
                           .lse = part.lse.data(),
                           .grad_q = {grad_qkv.data(), p.width},
                           .grad_k = {grad_keys.data(), keys_width},
                           .grad_v = {grad_keys.data() + p.shape.num_kv_heads * p.shape.head_dim, keys_width},
                           .pieces = pieces,
                           .workspace = workspace});
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t token = rank.tokens[index(r)];
      for (std::int64_t i = 0; i < p.o_width(); ++i) {
        ASSERT_EQ(wide(part.o[index(r * p.o_width() + i)]), wide(whole.o[index(token * p.o_width() + i)])) << token;
        ASSERT_NEAR(wide(grad_qkv[index(r * p.width + i)]), wide(whole_gradient[index(token * p.width + i)]), tolerance)
            << token;
      }
      for (std::int64_t h = 0; h < p.shape.num_heads; ++h) {
        ASSERT_EQ(part.lse[index(r * p.shape.num_heads + h)], whole.lse[index(token * p.shape.num_heads + h)]);
      }
    }
    for (std::int64_t i = rows * p.o_width(); i < capacity * p.o_width(); ++i) ASSERT_EQ(wide(part.o[index(i)]), 0);
    for (std::int64_t i = p.tokens * keys_width; i < (p.tokens + 5) * keys_width; ++i) {
      ASSERT_EQ(wide(grad_keys[index(i)]), 0);
    }
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += wide(grad_keys[i]);
  }
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    for (std::int64_t i = 0; i < keys_width; ++i) {
      ASSERT_NEAR(sums[index(t * keys_width + i)], wide(whole_gradient[index(p.k_at(t, 0) + i)]), 2 * tolerance) << t;
    }
  }
}

TEST(Attention, PiecesOfDocumentsHaveTheBitsOfWholeOnes) {
  expect_pieces_equal_documents<float>(4, 2, 16);
  expect_pieces_equal_documents<float>(2, 2, 40);
  expect_pieces_equal_documents<double>(3, 1, 8);
  expect_pieces_equal_documents<BFloat16>(4, 2, 32, 0.02);
}

template <class T>
void expect_gradient_near_double(const Problem<T>& p, double tolerance) {
  Problem<double> exact(p.shape.num_heads, p.shape.num_kv_heads, p.shape.head_dim, p.lengths);
  for (std::size_t i = 0; i < p.qkv.size(); ++i) exact.qkv[i] = static_cast<float>(p.qkv[i]);
  for (std::size_t i = 0; i < p.grad_o.size(); ++i) exact.grad_o[i] = static_cast<float>(p.grad_o[i]);
  const auto truth = backward(exact, forward(exact));
  const auto grad = backward(p, forward(p));
  for (std::int64_t i = 0; i < p.tokens * p.width; ++i) {
    ASSERT_NEAR(static_cast<float>(grad[index(i)]), truth[index(i)], tolerance * (1.0 + std::fabs(truth[index(i)])))
        << i;
  }
  for (std::int64_t i = p.tokens * p.width; i < p.capacity * p.width; ++i)
    ASSERT_EQ(static_cast<float>(grad[index(i)]), 0.0F) << i;
}

TEST(Attention, GradientInEveryTypeAndShape) {
  const std::int64_t shapes[][3] = {{4, 4, 64}, {6, 2, 40}, {7, 1, 8}, {2, 1, 128}};
  for (const auto& s : shapes) {
    SCOPED_TRACE(testing::Message() << s[0] << " heads on " << s[1] << " of " << s[2]);
    expect_gradient_near_double(Problem<float>(s[0], s[1], s[2], kLengths), 1e-5);
    expect_gradient_near_double(Problem<BFloat16>(s[0], s[1], s[2], kLengths), 3e-2);
  }
}

TEST(Attention, GradientDoesNotDependOnThreads) {
  const Problem<float> p(6, 2, 40, kLengths);
  const auto f = forward(p);
  const auto one = backward(p, f, 1);
  for (const int threads : {2, 3, 8}) EXPECT_TRUE(test::same_bits(backward(p, f, threads), one)) << threads;
}

TEST(Attention, RefusesShapesItCannotDo) {
  EXPECT_THROW(check_attention_shape({4, 4, 12, 1.0}), Error);
  EXPECT_THROW(check_attention_shape({4, 4, 264, 1.0}), Error);
  EXPECT_THROW(check_attention_shape({4, 4, 0, 1.0}), Error);
  EXPECT_THROW(check_attention_shape({4, 3, 64, 1.0}), Error);
  EXPECT_THROW((void)attention_workspace_bytes<float>({4, 0, 64, 1.0}, 1), Error);
  check_attention_shape({4, 2, 256, 1.0});
}

TEST(Attention, RefusesSequencesPastItsRoom) {
  Problem<float> p(2, 1, 16, {10});
  p.capacity = 9;
  EXPECT_THROW(forward(p), Defect);
  p.capacity = 10;
  p.cu_seqlens = {0, 8, 6};
  EXPECT_THROW(forward(p), Defect);
}

}  // namespace
}  // namespace hone
