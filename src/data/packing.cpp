#include "data/packing.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "core/error.h"

namespace hone {
namespace {

void require_capacity(std::int64_t capacity) {
  if (capacity < 1 || capacity > std::numeric_limits<std::int32_t>::max()) {
    throw Error("max_length", text_of("is ", capacity, "; a row must hold between 1 and 2^31 - 1 tokens"),
                "set it to the number of tokens of a packed row");
  }
}

std::vector<Segment> split_at(std::span<const Segment> segments, std::int64_t capacity) {
  std::vector<Segment> parts;
  parts.reserve(segments.size());
  const auto step = static_cast<std::int32_t>(capacity);
  for (const Segment& whole : segments) {
    for (std::int32_t done = 0; done < whole.length;) {
      const std::int32_t length = std::min(step, whole.length - done);
      parts.push_back({whole.example, whole.begin + done, length});
      done += length;
    }
  }
  return parts;
}

// The segments that are not placed yet, sorted by length. A distinct length is identified by its rank, from 1; rank 0
// means "none".
class Stock {
 public:
  explicit Stock(std::span<const Segment> segments) : sorted_(segments.begin(), segments.end()) {
    std::stable_sort(sorted_.begin(), sorted_.end(),
                     [](const Segment& a, const Segment& b) { return a.length < b.length; });
    for (std::size_t i = 0; i < sorted_.size(); ++i) {
      if (lengths_.back() == sorted_[i].length) continue;
      lengths_.push_back(sorted_[i].length);
      next_.push_back(i);
    }
    first_ = next_;
    first_.push_back(sorted_.size());
    nearest_.resize(lengths_.size());
    std::iota(nearest_.begin(), nearest_.end(), std::size_t{0});
  }

  [[nodiscard]] std::int64_t length(std::size_t rank) const { return lengths_[rank]; }
  // Rank of the longest remaining length that is at most `space`; 0 if there is none.
  [[nodiscard]] std::size_t longest_within(std::int64_t space) {
    const auto above = std::upper_bound(lengths_.begin(), lengths_.end(), space);
    return present_at_or_below(static_cast<std::size_t>(above - lengths_.begin()) - 1);
  }
  // Removes one segment of this rank.
  Segment take(std::size_t rank) {
    const Segment segment = sorted_[next_[rank]++];
    if (next_[rank] == first_[rank + 1]) nearest_[rank] = rank - 1;
    return segment;
  }
  // Moves two segments that fill `space` exactly into `row`. Of the pairs tried, it takes the one with the longest
  // segment; returns false if it finds none.
  [[nodiscard]] bool take_pair(std::int64_t space, std::vector<Segment>& row) {
    constexpr int kPairsTried = 64;
    std::size_t longer = longest_within(space - 1);
    for (int i = 0; i < kPairsTried && longer > 0; ++i, longer = present_at_or_below(longer - 1)) {
      const std::int64_t rest = space - lengths_[longer];
      if (rest > lengths_[longer]) break;
      const std::size_t shorter = longest_within(rest);
      if (lengths_[shorter] != rest || (shorter == longer && first_[longer + 1] - next_[longer] < 2)) continue;
      row.push_back(take(longer));
      row.push_back(take(shorter));
      return true;
    }
    return false;
  }

 private:
  // Largest rank at or below `rank` that still has segments. Lengths only ever run out, so this is a union-find that
  // points towards shorter lengths.
  std::size_t present_at_or_below(std::size_t rank) {
    while (nearest_[rank] != rank) {
      nearest_[rank] = nearest_[nearest_[rank]];
      rank = nearest_[rank];
    }
    return rank;
  }

  std::vector<Segment> sorted_;              // sorted by length; segments of equal length keep their order
  std::vector<std::int64_t> lengths_ = {0};  // [ranks]
  std::vector<std::size_t> first_;           // [ranks + 1]: where a rank begins in sorted_
  std::vector<std::size_t> next_ = {0};      // [ranks]: its first segment that is not taken
  std::vector<std::size_t> nearest_;         // [ranks]: the rank itself while it has segments, otherwise a lower one
};

}  // namespace

std::span<const Segment> PackedRows::operator[](std::int64_t row) const {
  HONE_ASSERT(row >= 0 && row < size(), row, " of ", size());
  const auto begin = static_cast<std::size_t>(offsets_[static_cast<std::size_t>(row)]);
  const auto end = static_cast<std::size_t>(offsets_[static_cast<std::size_t>(row) + 1]);
  return std::span<const Segment>(segments_).subspan(begin, end - begin);
}

std::int64_t PackedRows::token_count(std::int64_t row) const {
  std::int64_t count = 0;
  for (const Segment& segment : (*this)[row]) count += segment.length;
  return count;
}

std::int64_t PackedRows::token_count() const {
  std::int64_t count = 0;
  for (const Segment& segment : segments_) count += segment.length;
  return count;
}

void PackedRows::add_row(std::span<const Segment> segments) {
  segments_.insert(segments_.end(), segments.begin(), segments.end());
  offsets_.push_back(static_cast<std::int64_t>(segments_.size()));
}

Packing packing_from_name(std::string_view name) {
  if (name == "bfd") return Packing::kBfd;
  if (name == "bfd_split") return Packing::kBfdSplit;
  if (name == "wrapped") return Packing::kWrapped;
  throw Error("packing_strategy", text_of("'", name, "' is not known"), "use bfd, bfd_split or wrapped");
}

bool cuts_long_examples(Packing packing) { return packing == Packing::kNone || packing == Packing::kBfd; }

PackedRows pack(const ExampleSet& set, std::span<const std::uint32_t> examples, Packing packing,
                std::int64_t capacity) {
  if (packing != Packing::kNone) require_capacity(capacity);
  std::vector<Segment> segments;
  segments.reserve(examples.size());
  for (const std::uint32_t example : examples) {
    const std::int64_t length = set.length(example);
    if (length > std::numeric_limits<std::int32_t>::max()) {
      throw Error("", text_of("document ", example, " has ", length, " tokens, more than 2^31 - 1"),
                  "split the text into smaller files");
    }
    if (length > 0) segments.push_back({example, 0, static_cast<std::int32_t>(length)});
  }
  switch (packing) {
    case Packing::kBfd:
      return pack_bfd(segments, capacity);
    case Packing::kBfdSplit:
      return pack_bfd(split_at(segments, capacity), capacity);
    case Packing::kWrapped:
      return pack_wrapped(segments, capacity);
    case Packing::kNone:
      break;
  }
  PackedRows rows;
  for (const Segment& segment : segments) rows.add_row({&segment, 1});
  return rows;
}

PackedRows pack_bfd(std::span<const Segment> segments, std::int64_t capacity) {
  require_capacity(capacity);
  for (const Segment& segment : segments) {
    HONE_ASSERT(segment.length > 0 && segment.length <= capacity, segment.length, " tokens, capacity ", capacity);
  }
  Stock stock(segments);
  PackedRows packed;
  std::vector<Segment> row;
  // Each iteration fills one row: its first segment is the longest that is left.
  while (const std::size_t longest = stock.longest_within(capacity)) {
    row = {stock.take(longest)};
    std::int64_t space = capacity - row.front().length;
    while (const std::size_t fitting = stock.longest_within(space)) {
      if (stock.length(fitting) < space && stock.take_pair(space, row)) break;
      row.push_back(stock.take(fitting));
      space -= row.back().length;
    }
    packed.add_row(row);
  }
  return packed;
}

PackedRows pack_wrapped(std::span<const Segment> segments, std::int64_t capacity) {
  require_capacity(capacity);
  PackedRows packed;
  std::vector<Segment> row;
  std::int64_t space = capacity;
  for (Segment rest : segments) {
    while (rest.length > 0) {
      const auto length = static_cast<std::int32_t>(std::min<std::int64_t>(rest.length, space));
      row.push_back({rest.example, rest.begin, length});
      rest.begin += length;
      rest.length -= length;
      space -= length;
      if (space == 0) {
        packed.add_row(row);
        row.clear();
        space = capacity;
      }
    }
  }
  if (!row.empty()) packed.add_row(row);
  return packed;
}

}  // namespace hone
