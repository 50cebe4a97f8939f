#include "ops/linear/few_rows_tiles.h"

#include <algorithm>
#include <limits>

namespace hone {
namespace {

std::int64_t divided(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Tiles of the busiest SM.
std::int64_t rounds_of(const FewRowsTile& tile, std::int64_t m, std::int64_t n, int sm_count) {
  return divided(divided(n, tile.rows) * divided(m, tile.tokens), sm_count);
}

}  // namespace

bool few_rows_pay(std::int64_t m, std::int64_t n, std::int64_t k) {
  return m <= 128 || (m > 320 && m <= 384 && k > 2 * n);
}

FewRowsTile few_rows_tile(std::int64_t m, std::int64_t n, int sm_count, int matrices) {
  FewRowsTile best{};
  double best_cost = std::numeric_limits<double>::infinity();
  const auto consider = [&](const FewRowsTile& tile, double cost_of_tile) {
    const double cost = static_cast<double>(rounds_of(tile, m, n, sm_count)) * cost_of_tile;
    if (cost >= best_cost) return;
    best = tile;
    best_cost = cost;
  };
  if (m <= 64) {
    // A tile costs its rows of W and, more cheaply since they come from the L2 cache, the rows of x.
    const int tokens = m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : 64;
    for (int rows = 64; rows >= 16; rows -= 8) consider({rows, tokens}, matrices * rows + 4.0 + 0.4 * tokens);
    return best;
  }
  // The products, and what is copied to shared memory and read there, which takes as long as some of them.
  const auto with_groups = [&]<int... kGroups>(std::integer_sequence<int, kGroups...>) {
    for (const int tokens : {128, 64}) {
      for (const int groups : {kGroups...}) {
        const int rows = groups * 8;
        if (tokens > 64 && groups < kLeastWideGroups) continue;
        const int of_weight = matrices * rows;
        if (of_weight <= kMostTileRows) consider({rows, tokens}, of_weight + tokens + of_weight * tokens / 12.0);
      }
    }
  };
  with_groups(FewRowsTileGroups{});
  return best;
}

}  // namespace hone
