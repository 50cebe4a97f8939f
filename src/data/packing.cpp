#include "data/packing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "core/error.h"

namespace hone {
namespace {

void require_capacity(std::int64_t capacity) {
  if (capacity < 1 || capacity > std::numeric_limits<std::int32_t>::max()) {
    throw Error("max_length", text_of("is ", capacity, ", which cannot hold a token"),
                "give the number of tokens of a packed row");
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

// Open rows by the space left in them.
class OpenRows {
 public:
  // The row with the least space >= length, taken out; -1 where there is none.
  std::int64_t take(std::int64_t length, std::int64_t& space) {
    const auto found = rows_.lower_bound(length);
    if (found == rows_.end()) return -1;
    space = found->first;
    const std::int64_t row = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) rows_.erase(found);
    return row;
  }
  void put(std::int64_t row, std::int64_t space) {
    if (space > 0) rows_[space].push_back(row);
  }

 private:
  std::map<std::int64_t, std::vector<std::int64_t>> rows_;
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
  if (name == "bfd") return Packing::bfd;
  if (name == "bfd_split") return Packing::bfd_split;
  if (name == "wrapped") return Packing::wrapped;
  throw Error("packing_strategy", text_of("'", name, "' is not known"), "use bfd, bfd_split or wrapped");
}

bool cuts_long_examples(Packing packing) { return packing == Packing::none || packing == Packing::bfd; }

PackedRows pack(const ExampleSet& set, std::span<const std::uint32_t> examples, Packing packing,
                std::int64_t capacity) {
  if (packing != Packing::none) require_capacity(capacity);
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
    case Packing::bfd:
      return pack_bfd(segments, capacity);
    case Packing::bfd_split:
      return pack_bfd(split_at(segments, capacity), capacity);
    case Packing::wrapped:
      return pack_wrapped(segments, capacity);
    case Packing::none:
      break;
  }
  PackedRows rows;
  for (const Segment& segment : segments) rows.add_row({&segment, 1});
  return rows;
}

PackedRows pack_bfd(std::span<const Segment> segments, std::int64_t capacity) {
  require_capacity(capacity);
  std::vector<std::size_t> order(segments.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return segments[a].length > segments[b].length; });

  OpenRows open;
  std::vector<std::vector<Segment>> rows;
  for (const std::size_t index : order) {
    const Segment& segment = segments[index];
    HONE_ASSERT(segment.length <= capacity, "a segment of ", segment.length, " tokens, capacity ", capacity);
    std::int64_t space = capacity;
    std::int64_t row = open.take(segment.length, space);
    if (row < 0) {
      row = static_cast<std::int64_t>(rows.size());
      rows.emplace_back();
    }
    rows[static_cast<std::size_t>(row)].push_back(segment);
    open.put(row, space - segment.length);
  }
  PackedRows packed;
  for (const auto& row : rows) packed.add_row(row);
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
