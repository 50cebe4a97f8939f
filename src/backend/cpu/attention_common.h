// Helpers shared by the forward and backward passes of CPU attention.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cpu/attention.h"
#include "core/error.h"
#include "core/parallel.h"

namespace hone {

inline constexpr std::int64_t kKeyTile = 64;
inline constexpr std::size_t kWorkspaceAlignment = 64;  // bytes

inline std::int64_t attention_round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Divides one thread's share of a workspace into aligned arrays. With a null base it only computes their size.
class WorkspaceAllocator {
 public:
  explicit WorkspaceAllocator(std::byte* base) : base_(base) {}
  template <class U>
  U* take(std::int64_t count) {
    U* result = reinterpret_cast<U*>(base_ + used_);
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(U);
    used_ += (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    return result;
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

// Calls body(share, thread, threads) in parallel, with up to thread_count() threads, but no more than the workspace has
// shares of `share` bytes for.
template <class Body>
void for_each_share(std::span<std::byte> workspace, std::size_t share, const Body& body) {
  void* base = workspace.data();
  std::size_t space = workspace.size();
  HONE_ASSERT(std::align(kWorkspaceAlignment, share, base, space) != nullptr, workspace.size(),
              " bytes of workspace, needs ", share + kWorkspaceAlignment, " bytes");
  const std::int64_t threads = std::min<std::int64_t>(thread_count(), static_cast<std::int64_t>(space / share));
  parallel_for(threads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t thread = begin; thread < end; ++thread) {
      body(static_cast<std::byte*>(base) + static_cast<std::size_t>(thread) * share, thread, threads);
    }
  });
}

inline void check_cu_seqlens(std::span<const std::int32_t> cu_seqlens, std::int64_t capacity) {
  HONE_ASSERT(!cu_seqlens.empty() && cu_seqlens[0] == 0, "cu_seqlens must start with 0");
  for (std::size_t s = 1; s < cu_seqlens.size(); ++s) {
    HONE_ASSERT(cu_seqlens[s] >= cu_seqlens[s - 1], "cu_seqlens[", s, "] = ", cu_seqlens[s], " after ",
                cu_seqlens[s - 1]);
  }
  HONE_ASSERT(cu_seqlens.back() <= capacity, cu_seqlens.back(), " tokens exceed the capacity of ", capacity);
}

// Queries [token, token + rows) from position `start` of a document on, which has its keys in `keys` rows from key_row
// on.
struct AttentionPiece {
  std::size_t sequence = 0;
  std::int64_t token = 0, rows = 0, start = 0;
  std::int64_t key_row = 0, keys = 0;
};

// Calls use(piece) for the sequences of queries of all documents in order; asserts that they are within these.
template <class Use>
void for_each_piece(const AttentionPieces& pieces, std::span<const std::int32_t> cu_seqlens, const Use& use) {
  HONE_ASSERT(pieces.of.size() == pieces.documents.size() && pieces.starts.size() + 1 == cu_seqlens.size() &&
                  pieces.key_rows.size() == pieces.starts.size(),
              pieces.documents.size(), " documents, ", pieces.of.size(), " first sequences, ", pieces.starts.size(),
              " starts, ", cu_seqlens.size(), " cu_seqlens");
  check_cu_seqlens(pieces.documents, pieces.key_capacity);
  for (std::size_t d = 0; d + 1 < pieces.documents.size(); ++d) {
    const std::int64_t keys = pieces.documents[d + 1] - pieces.documents[d];
    for (auto s = static_cast<std::size_t>(pieces.of[d]); s < static_cast<std::size_t>(pieces.of[d + 1]); ++s) {
      HONE_ASSERT(s + 1 < cu_seqlens.size(), "document ", d, " has sequence ", s);
      const std::int64_t rows = cu_seqlens[s + 1] - cu_seqlens[s];
      HONE_ASSERT(pieces.starts[s] >= 0 && pieces.starts[s] + rows <= keys && pieces.key_rows[s] == pieces.documents[d],
                  "sequence ", s, " is at ", pieces.starts[s], " of document ", d);
      use(AttentionPiece{s, cu_seqlens[s], rows, pieces.starts[s], pieces.documents[d], keys});
    }
  }
}

template <class T>
void zero_rows(const HeadRows<T>& rows, std::int64_t begin, std::int64_t end, std::int64_t width) {
  for (std::int64_t t = begin; t < end; ++t) std::fill_n(rows.data + t * rows.stride, width, T());
}

}  // namespace hone
