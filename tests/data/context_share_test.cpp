// Tests of the division of micro-batches over a context group: every token has one rank, and the ranks have as much
// work.
#include "data/context_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace hone::test {
namespace {

std::vector<std::int32_t> bounds_of(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> bounds{0};
  for (const std::int32_t length : lengths) bounds.push_back(bounds.back() + length);
  return bounds;
}

// Micro-batches: one long document, several, short ones, both, and fewer tokens than ranks.
std::vector<std::vector<std::int32_t>> micro_batches() {
  std::vector<std::int32_t> mixed{9000, 3, 1, 70, 5000, 600};
  for (int i = 0; i < 300; ++i) mixed.push_back(1 + i * 37 % 200);
  std::vector<std::int32_t> many(500);
  std::iota(many.begin(), many.end(), 1);
  return {{8192}, {4096, 4096, 4096}, {10001, 777}, mixed, many, {1, 1, 1}, {5}, {}};
}

TEST(ContextShare, EveryTokenHasOneRank) {
  for (const auto& lengths : micro_batches()) {
    const std::vector<std::int32_t> bounds = bounds_of(lengths);
    for (const int ranks : {1, 2, 3, 4, 8}) {
      std::int32_t next = 0;
      std::vector<std::int64_t> tokens(static_cast<std::size_t>(ranks), 0);
      std::vector<std::int64_t> pieces(static_cast<std::size_t>(ranks), 0);
      for (const ContextPiece& piece : cut_for_context(bounds, ranks)) {
        ASSERT_EQ(piece.token, next);
        ASSERT_GT(piece.tokens, 0);
        const auto d = static_cast<std::size_t>(piece.document);
        ASSERT_EQ(piece.start, piece.token - bounds[d]);
        ASSERT_LE(piece.token + piece.tokens, bounds[d + 1]);
        next = piece.token + piece.tokens;
        tokens[static_cast<std::size_t>(piece.rank)] += piece.tokens;
        ++pieces[static_cast<std::size_t>(piece.rank)];
      }
      EXPECT_EQ(next, bounds.back());
      const auto [least, most] = std::ranges::minmax(tokens);
      EXPECT_LE(most - least, 1) << lengths.size() << " documents, " << ranks << " ranks";
      EXPECT_LE(std::ranges::max(pieces), 2 * static_cast<std::int64_t>(lengths.size()));
    }
  }
}

TEST(ContextShare, RanksHaveAsMuchAttention) {
  for (const auto& lengths : micro_batches()) {
    const std::vector<std::int32_t> bounds = bounds_of(lengths);
    if (bounds.back() < 1000) continue;
    for (const int ranks : {2, 4, 8}) {
      const std::vector<ContextPiece> pieces = cut_for_context(bounds, ranks);
      double all = 0;
      double most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        all += attention_pairs(pieces, rank);
        most = std::max(most, attention_pairs(pieces, rank));
      }
      double expected = 0;
      for (const std::int32_t length : lengths) expected += 0.5 * length * (length + 1.0);
      EXPECT_EQ(all, expected);
      // One rank has at most 2% more than the mean; of short documents alone, which cost little, a quarter more.
      const bool has_long = std::ranges::max(lengths) >= 4096;
      EXPECT_LE(most * ranks / all, has_long ? 1.02 : 1.25) << lengths.size() << " documents, " << ranks << " ranks";
    }
  }
}

TEST(ContextShare, AShareHasTheArraysOfItsTokens) {
  HostBatch whole;
  for (const std::int32_t length : {3, 2, 600}) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(length));
    std::iota(tokens.begin(), tokens.end(), 7 * length);
    append_document(whole, {.tokens = tokens, .is_target = {}}, 0, length, LookAhead::kNo);
  }
  std::vector<HostBatch> shares;
  std::int64_t targets = 0;
  for (int rank = 0; rank < 2; ++rank) {
    shares.push_back(context_share(whole, rank, 2));
    EXPECT_EQ(shares.back().cu_seqlens, whole.cu_seqlens);
    targets += shares.back().target_tokens;
  }
  EXPECT_EQ(targets, whole.target_tokens);
  std::vector<std::size_t> next(2, 0);
  for (const ContextPiece& piece : shares[0].context->pieces) {
    const auto rank = static_cast<std::size_t>(piece.rank);
    for (std::int32_t i = 0; i < piece.tokens; ++i) {
      const std::size_t row = next[rank]++;
      const auto token = static_cast<std::size_t>(piece.token + i);
      EXPECT_EQ(shares[rank].tokens[row], whole.tokens[token]);
      EXPECT_EQ(shares[rank].targets[row], whole.targets[token]);
      EXPECT_EQ(shares[rank].positions[row], whole.positions[token]);
      EXPECT_EQ(shares[rank].loss_weights[row], whole.loss_weights[token]);
    }
  }
  EXPECT_EQ(next[0], shares[0].tokens.size());
  EXPECT_EQ(next[1], shares[1].tokens.size());
}

}  // namespace
}  // namespace hone::test
