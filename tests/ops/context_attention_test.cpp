// Tests of attention over divided documents, one rank of a context group after the other in one process: results and
// gradients next to those of attention() over the whole documents. The operands are given instead of gathered.
#include "ops/context_attention/context_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "ops/test_run.h"
#include "passes/gradient.h"

namespace hone::test {
namespace {

// Tokens [start, start + tokens) of a document.
struct Piece {
  std::int64_t document = 0, start = 0, tokens = 0;
};

struct ContextCase {
  const char* name;
  std::vector<std::int64_t> lengths;  // of the documents
  int ranks = 2;
  AttentionAttributes attributes;
};

// Documents whose tokens are dealt to ranks, and two absent documents.
struct Deal {
  std::vector<std::int32_t> cu_seqlens{0};
  std::vector<std::vector<Piece>> pieces;  // [ranks], two for each document, which may be empty
  std::int64_t capacity = 0;               // rows of a rank

  explicit Deal(const ContextCase& test) : pieces(static_cast<std::size_t>(test.ranks)) {
    const RandomStream random(7, "pieces");
    std::uint64_t drawn = 0;
    for (std::size_t d = 0; d < test.lengths.size(); ++d) {
      // Twice as many chunks as ranks, cut anywhere; a rank has a chunk and its mirror image.
      const auto length = static_cast<std::uint64_t>(test.lengths[d]);
      std::vector<std::int64_t> cuts{0, test.lengths[d]};
      for (int i = 1; i < 2 * test.ranks; ++i) {
        cuts.push_back(static_cast<std::int64_t>(random.below(drawn++, length + 1)));
      }
      std::ranges::sort(cuts);
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        pieces[std::min(i, cuts.size() - 2 - i)].push_back(
            {static_cast<std::int64_t>(d), cuts[i], cuts[i + 1] - cuts[i]});
      }
      cu_seqlens.push_back(cu_seqlens.back() + static_cast<std::int32_t>(length));
    }
    for (const std::vector<Piece>& of_rank : pieces) {
      std::int64_t rows = 5;  // outside all pieces
      for (const Piece& piece : of_rank) rows += piece.tokens;
      capacity = std::max(capacity, rows);
    }
    capacity = std::max(capacity, (tokens() + test.ranks - 1) / test.ranks);
    for (int absent = 0; absent < 2; ++absent) cu_seqlens.push_back(cu_seqlens.back());
  }

  [[nodiscard]] std::int64_t tokens() const { return cu_seqlens.back(); }
  // The tokens of the micro-batch that a rank has, in the order of its rows.
  [[nodiscard]] std::vector<std::int64_t> tokens_of(std::size_t rank) const {
    std::vector<std::int64_t> rows;
    for (const Piece& piece : pieces[rank]) {
      for (std::int64_t i = 0; i < piece.tokens; ++i) {
        rows.push_back(cu_seqlens[static_cast<std::size_t>(piece.document)] + piece.start + i);
      }
    }
    return rows;
  }
};

template <class T>
struct Gradients {
  std::vector<T> o;     // [rows, heads, head_dim]
  std::vector<T> of_q;  // [rows, heads + 2 kv_heads, head_dim], of which the keys and values of a rank are not used
  std::vector<T> of_keys;
};

// qkv and grad_o of all tokens, and where a row's parts begin.
template <class T>
struct Operands {
  AttentionAttributes a;
  std::int64_t width, keys, out;  // elements of a row of qkv, of its keys and values, and of o
  std::vector<T> qkv, grad_o;

  Operands(const AttentionAttributes& attributes, std::int64_t tokens)
      : a(attributes),
        width((a.heads + 2 * a.kv_heads) * a.head_dim),
        keys(2 * a.kv_heads * a.head_dim),
        out(a.heads * a.head_dim),
        qkv(normal_values<T>(static_cast<std::size_t>(tokens * width), 1)),
        grad_o(normal_values<T>(static_cast<std::size_t>(tokens * out), 2)) {
    for (std::size_t i = 0; i < qkv.size(); ++i) {
      const std::int64_t value = static_cast<std::int64_t>(i) % width - (a.heads + a.kv_heads) * a.head_dim;
      if (value >= 0 && value % a.head_dim >= a.values()) qkv[i] = T(0.0F);
    }
  }
  // False for elements [tokens, keys] of values past value_dim, whose gradients are not defined.
  [[nodiscard]] bool has_gradient(std::size_t i) const {
    const std::int64_t column = static_cast<std::int64_t>(i) % keys;
    return column < keys / 2 || column % a.head_dim < a.values();
  }
};

template <class T>
Gradients<T> whole_documents(const Operands<T>& of, const Deal& deal) {
  Program program;
  const Tensor qkv = program.input("qkv", {DTypeOf<T>::value, {deal.tokens(), of.width}});
  const auto bounds = static_cast<std::int64_t>(deal.cu_seqlens.size());
  const Tensor o = attention(qkv, program.input("cu_seqlens", {DType::kI32, {bounds}}), of.a);
  program.output("o", o);
  const GradientSeed seed{o, program.input("grad_o", o.type())};
  program.output("gradient", append_gradients(program, std::span(&seed, 1), std::span(&qkv, 1))[0]);
  TestRun run(std::move(program));
  run.set("qkv", of.qkv);
  run.set("grad_o", of.grad_o);
  run.set("cu_seqlens", deal.cu_seqlens);
  run.executable().run();
  return {run.template output<T>("o", of.grad_o.size()), run.template output<T>("gradient", of.qkv.size()), {}};
}

// Rows of `all` [tokens, columns], then garbage up to the capacity.
template <class T>
std::vector<T> rows_of(const std::vector<T>& all, std::int64_t columns, const std::vector<std::int64_t>& tokens,
                       std::int64_t capacity) {
  std::vector<T> rows = normal_values<T>(static_cast<std::size_t>(capacity * columns), 3);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::copy_n(all.begin() + tokens[i] * columns, columns, rows.begin() + static_cast<std::int64_t>(i) * columns);
  }
  return rows;
}

// Returns what one rank computes.
template <class T>
Gradients<T> pieces_of_rank(const Operands<T>& of, const Deal& deal, std::size_t rank) {
  register_operations();
  const std::vector<std::int64_t> tokens = deal.tokens_of(rank);
  const auto ranks = static_cast<std::int64_t>(deal.pieces.size());
  std::vector<std::int32_t> piece_bounds{0}, piece_starts, piece_keys, document_pieces{0};
  for (const Piece& piece : deal.pieces[rank]) {
    piece_bounds.push_back(piece_bounds.back() + static_cast<std::int32_t>(piece.tokens));
    piece_starts.push_back(static_cast<std::int32_t>(piece.start));
    piece_keys.push_back(deal.cu_seqlens[static_cast<std::size_t>(piece.document)]);
  }
  for (int absent = 0; absent < 4; ++absent) {  // as many as two absent documents have
    piece_bounds.push_back(piece_bounds.back());
    piece_starts.push_back(0);
    piece_keys.push_back(0);
  }
  for (std::size_t d = 0; d + 1 < deal.cu_seqlens.size(); ++d) {
    document_pieces.push_back(static_cast<std::int32_t>(std::min(2 * (d + 1), deal.pieces[rank].size())));
  }
  Program program;
  const auto ids = [&](const char* name, std::size_t count) {
    return program.input(name, {DType::kI32, {static_cast<std::int64_t>(count)}});
  };
  const Tensor qkv = program.input("qkv", {DTypeOf<T>::value, {deal.capacity, of.width}});
  const Tensor keys = program.input("keys", {DTypeOf<T>::value, {ranks * deal.capacity, of.keys}});
  const Tensor rows = ids("rows", static_cast<std::size_t>(ranks * deal.capacity));
  const std::vector<Tensor> pieces{ids("piece_bounds", piece_bounds.size()), ids("piece_starts", piece_starts.size()),
                                   ids("piece_keys", piece_keys.size()), ids("document_pieces", document_pieces.size()),
                                   ids("cu_seqlens", deal.cu_seqlens.size())};
  std::vector<Tensor> operands{qkv, keys, rows};
  operands.insert(operands.end(), pieces.begin(), pieces.end());
  const std::vector<Tensor> results = program.append(op_registry().get("context_attention"), of.a, operands);
  operands.assign({qkv, keys});
  operands.insert(operands.end(), pieces.begin(), pieces.end());
  operands.push_back(program.input("grad_o", results[AttentionOut::o].type()));
  operands.insert(operands.end(), results.begin(), results.end());
  const std::vector<Tensor> gradients = program.append(op_registry().get("context_attention_backward"), of.a, operands);
  program.output("o", results[AttentionOut::o]);
  program.output("of_q", gradients[ContextAttentionBackwardOut::qkv]);
  program.output("of_keys", gradients[ContextAttentionBackwardOut::keys]);
  TestRun run(std::move(program));
  run.set("qkv", rows_of(of.qkv, of.width, tokens, deal.capacity));
  run.set("grad_o", rows_of(of.grad_o, of.out, tokens, deal.capacity));
  std::vector<T> gathered(static_cast<std::size_t>(ranks * deal.capacity * of.keys), T(0.0F));
  for (std::int64_t token = 0; token < deal.tokens(); ++token) {
    std::copy_n(of.qkv.begin() + (token + 1) * of.width - of.keys, of.keys, gathered.begin() + token * of.keys);
  }
  run.set("keys", gathered);
  run.set("rows", std::vector<std::int32_t>(static_cast<std::size_t>(ranks * deal.capacity)));
  run.set("piece_bounds", piece_bounds);
  run.set("piece_starts", piece_starts);
  run.set("piece_keys", piece_keys);
  run.set("document_pieces", document_pieces);
  run.set("cu_seqlens", deal.cu_seqlens);
  run.executable().run();
  return {run.template output<T>("o", static_cast<std::size_t>(deal.capacity * of.out)),
          run.template output<T>("of_q", static_cast<std::size_t>(deal.capacity * of.width)),
          run.template output<T>("of_keys", gathered.size())};
}

// Checks each number within `tolerance` of the sum of its addends' sizes and of the root of the mean square of all.
void expect_near(const std::vector<double>& seen, const std::vector<double>& wanted, const std::vector<double>& sizes,
                 double tolerance, const std::string& what) {
  double squares = 0;
  for (const double value : wanted) squares += value * value;
  const double typical = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(wanted.size(), 1)));
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double off = std::abs(seen[i] - wanted[i]) / (typical + sizes[i]);
    if (off <= worst) continue;
    worst = off;
    at = i;
    if (std::isnan(off)) break;
  }
  EXPECT_LE(worst, tolerance) << what << " at " << at << ": " << seen[at] << ", not " << wanted[at];
}

// True if dq has the bits of whole documents too: its sum over blocks of keys has the same order.
bool has_query_gradient_bits(const ContextCase& test, DType dtype) {
  const Device& device = test_device();
  if (device.kind() == DeviceKind::kCpu) return true;
  const bool on_hopper =
      device.name().find("H100") != std::string::npos || device.name().find("H200") != std::string::npos;
  return on_hopper && dtype == DType::kBf16 && test.attributes.head_dim >= 64;
}

template <class T>
void check_context(const ContextCase& test) {
  const Deal deal(test);
  const Operands<T> of(test.attributes, deal.tokens());
  const Gradients<T> whole = whole_documents(of, deal);
  std::vector<double> keys(static_cast<std::size_t>(deal.tokens() * of.keys), 0.0), wanted_keys = keys, sizes = keys;
  std::vector<double> queries(static_cast<std::size_t>(deal.tokens() * of.out)), wanted_queries(queries.size());
  bool same_queries = true;
  for (std::size_t rank = 0; rank < deal.pieces.size(); ++rank) {
    const Gradients<T> part = pieces_of_rank(of, deal, rank);
    const std::vector<std::int64_t> tokens = deal.tokens_of(rank);
    const auto used = static_cast<std::int64_t>(tokens.size());
    EXPECT_TRUE(same_bits(rows_of(whole.o, of.out, tokens, used),
                          std::vector<T>(part.o.begin(), part.o.begin() + used * of.out)))
        << test.name << ", rank " << rank;
    EXPECT_TRUE(std::all_of(part.o.begin() + used * of.out, part.o.end(), [](T x) { return float(x) == 0; }));
    EXPECT_TRUE(std::all_of(part.of_keys.begin() + deal.tokens() * of.keys, part.of_keys.end(),
                            [](T x) { return float(x) == 0; }));
    for (std::int64_t row = used; row < deal.capacity; ++row) {
      const auto first = part.of_q.begin() + row * of.width;
      EXPECT_TRUE(std::all_of(first, first + of.out, [](T x) { return float(x) == 0; }))
          << test.name << ", rank " << rank << ", row " << row << " past the pieces";
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!of.has_gradient(i)) continue;
      keys[i] += double(float(part.of_keys[i]));
      sizes[i] += std::abs(double(float(part.of_keys[i])));
    }
    for (std::int64_t i = 0; i < used * of.out; ++i) {
      const T seen = part.of_q[static_cast<std::size_t>(i / of.out * of.width + i % of.out)];
      const auto token = static_cast<std::size_t>(tokens[static_cast<std::size_t>(i / of.out)]);
      const std::size_t place = token * static_cast<std::size_t>(of.width) + static_cast<std::size_t>(i % of.out);
      const std::size_t at = token * static_cast<std::size_t>(of.out) + static_cast<std::size_t>(i % of.out);
      queries[at] = double(float(seen));
      wanted_queries[at] = double(float(whole.of_q[place]));
      same_queries = same_queries && std::memcmp(&seen, &whole.of_q[place], sizeof(T)) == 0;
    }
    const Gradients<T> again = pieces_of_rank(of, deal, rank);
    EXPECT_TRUE(same_bits(part.of_q, again.of_q) && same_bits(part.of_keys, again.of_keys)) << test.name;
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(of.keys);
    const std::size_t column = i % static_cast<std::size_t>(of.keys) + static_cast<std::size_t>(of.width - of.keys);
    if (of.has_gradient(i))
      wanted_keys[i] = double(float(whole.of_q[row * static_cast<std::size_t>(of.width) + column]));
  }
  // attention() may have a kernel that rounds weights and their gradients to bf16, and ranks one that does not.
  const bool same_kernel = has_query_gradient_bits(test, DTypeOf<T>::value);
  const double tolerance = std::is_same_v<T, float> ? 1e-5 : same_kernel ? 1.0 / 128 : 1.0 / 64;
  expect_near(keys, wanted_keys, sizes, tolerance, text_of(test.name, ", keys"));
  sizes.clear();
  for (const double value : wanted_queries) sizes.push_back(std::abs(value));
  expect_near(queries, wanted_queries, sizes, tolerance, text_of(test.name, ", queries"));
  EXPECT_TRUE(same_queries || !same_kernel) << test.name;
}

// One test for each case, because memory checkers take minutes for one.
class ContextAttentionCases : public ::testing::TestWithParam<ContextCase> {};

TEST_P(ContextAttentionCases, AreThoseOfWholeDocuments) {
  check_context<BFloat16>(GetParam());
  if (GetParam().lengths[0] < 1000) check_context<float>(GetParam());
}

// The tiles of Hopper's kernels have 128 / group tokens and 128 keys forward, 64 tokens and 128 keys backward; a split
// has 4,096 keys.
INSTANTIATE_TEST_SUITE_P(
    ContextAttention, ContextAttentionCases,
    ::testing::Values(
        ContextCase{"Small", {90, 1, 33}, 2, {.heads = 2, .kv_heads = 1, .head_dim = 16, .scale = 0.25}},
        ContextCase{"Heads64", {700, 3, 130, 1, 257}, 2, {.heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125}},
        ContextCase{"Heads128", {1300, 90}, 3, {.heads = 4, .kv_heads = 1, .head_dim = 128, .scale = 0.088}},
        ContextCase{"OneRank", {300, 40}, 1, {.heads = 2, .kv_heads = 2, .head_dim = 128, .scale = 0.088}},
        ContextCase{
            "Latent", {600, 200}, 2, {.heads = 2, .kv_heads = 2, .head_dim = 192, .scale = 0.07, .value_dim = 128}},
        ContextCase{"Splits", {4500, 20}, 2, {.heads = 2, .kv_heads = 1, .head_dim = 64, .scale = 0.125}},
        ContextCase{
            "LatentSplits", {4200}, 2, {.heads = 1, .kv_heads = 1, .head_dim = 192, .scale = 0.07, .value_dim = 128}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace hone::test
