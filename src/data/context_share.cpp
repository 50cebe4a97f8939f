#include "data/context_share.h"

#include <algorithm>
#include <tuple>

#include "core/error.h"

namespace hone {
namespace {

constexpr std::int64_t kLeastChunk = 64;  // tokens of a chunk of one document

// Deals the tokens of the documents to the ranks.
class TokenDealer {
 public:
  TokenDealer(std::span<const std::int32_t> cu_seqlens, int ranks)
      : bounds_(cu_seqlens), ranks_(static_cast<std::size_t>(ranks)), tokens_(ranks_, 0) {}

  // Cuts the documents, laid end to end, into chunks.
  void deal(std::span<const std::int32_t> documents) {
    std::int64_t total = 0;
    for (const std::int32_t d : documents) total += length(d);
    std::size_t chunk = 0;
    const std::vector<std::int64_t> chunks = chunks_of(total);
    std::int64_t left = chunks[0];
    for (const std::int32_t d : documents) {
      for (std::int64_t start = 0; start < length(d);) {
        while (left == 0) left = chunks[++chunk];
        const std::int64_t count = std::min(left, length(d) - start);
        pieces_.push_back({.rank = static_cast<std::int32_t>(rank_of(chunk)),
                           .document = d,
                           .token = static_cast<std::int32_t>(bounds_[static_cast<std::size_t>(d)] + start),
                           .start = static_cast<std::int32_t>(start),
                           .tokens = static_cast<std::int32_t>(count)});
        start += count;
        left -= count;
      }
    }
  }

  std::vector<ContextPiece> pieces() {
    std::ranges::sort(pieces_, {}, &ContextPiece::token);
    return std::move(pieces_);
  }

 private:
  [[nodiscard]] std::int64_t length(std::int32_t d) const {
    const auto at = static_cast<std::size_t>(d);
    return bounds_[at + 1] - bounds_[at];
  }
  [[nodiscard]] std::size_t rank_of(std::size_t chunk) const { return std::min(chunk, 2 * ranks_ - 1 - chunk); }

  // Returns the tokens of the chunks, and counts them as those of their ranks.
  std::vector<std::int64_t> chunks_of(std::int64_t total) {
    const auto count = static_cast<std::int64_t>(2 * ranks_);
    std::vector<std::int64_t> chunks(2 * ranks_, total / count);
    for (std::int64_t& tokens : tokens_) tokens += 2 * (total / count);
    std::vector<int> more(ranks_, 0);
    for (std::int64_t left = total % count; left > 0; --left) {
      std::size_t least = 0;
      for (std::size_t r = 1; r < ranks_; ++r) {
        if (std::tie(tokens_[r], more[r]) < std::tie(tokens_[least], more[least])) least = r;
      }
      ++chunks[more[least] % 2 == 0 ? least : 2 * ranks_ - 1 - least];
      ++more[least];
      ++tokens_[least];
    }
    return chunks;
  }

  std::span<const std::int32_t> bounds_;
  std::size_t ranks_;
  std::vector<std::int64_t> tokens_;  // [ranks]
  std::vector<ContextPiece> pieces_;
};

}  // namespace

std::vector<ContextPiece> cut_for_context(std::span<const std::int32_t> cu_seqlens, int ranks) {
  HONE_ASSERT(ranks > 0 && !cu_seqlens.empty(), ranks, " ranks, ", cu_seqlens.size(), " bounds");
  TokenDealer dealer(cu_seqlens, ranks);
  std::vector<std::int32_t> short_documents;
  for (std::int32_t d = 0; d + 1 < static_cast<std::int32_t>(cu_seqlens.size()); ++d) {
    const auto at = static_cast<std::size_t>(d);
    if (cu_seqlens[at + 1] - cu_seqlens[at] < 2 * kLeastChunk * ranks) {
      short_documents.push_back(d);
    } else {
      dealer.deal({&d, 1});
    }
  }
  dealer.deal(short_documents);
  return dealer.pieces();
}

HostBatch context_share(const HostBatch& whole, int rank, int ranks) {
  HONE_ASSERT(!whole.context && rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks);
  HostBatch share{.cu_seqlens = whole.cu_seqlens};
  share.context = ContextShare{.rank = rank, .ranks = ranks, .pieces = cut_for_context(whole.cu_seqlens, ranks)};
  for (const ContextPiece& piece : share.context->pieces) {
    if (piece.rank != rank) continue;
    const auto append = [&](auto& to, const auto& from) {
      to.insert(to.end(), from.begin() + piece.token, from.begin() + piece.token + piece.tokens);
    };
    append(share.tokens, whole.tokens);
    append(share.targets, whole.targets);
    append(share.positions, whole.positions);
    append(share.loss_weights, whole.loss_weights);
  }
  share.target_tokens = std::ranges::count_if(share.loss_weights, [](float weight) { return weight != 0; });
  return share;
}

double attention_pairs(std::span<const ContextPiece> pieces, int rank) {
  double pairs = 0;
  for (const ContextPiece& piece : pieces) {
    if (piece.rank != rank) continue;
    const double first = piece.start + 1.0;
    const double last = piece.start + static_cast<double>(piece.tokens);
    pairs += (first + last) * piece.tokens / 2;
  }
  return pairs;
}

}  // namespace hone
