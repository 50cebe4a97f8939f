// A journal that several processes fill: each appends the rows of its share of the work to its part, a file next to the
// journal, and the process that has the first share appends them to the journal itself.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "data/journal.h"

namespace hone {

// The share of the work that one of `count` processes has: every count-th item.
struct Share {
  std::size_t number = 0;
  std::size_t count = 1;
  [[nodiscard]] bool has(std::size_t item) const { return item % count == number; }
};

// The processes that have the other shares, for the one that has the first. They are ended if it ends before them.
class OtherShares {
 public:
  OtherShares() = default;
  OtherShares(const OtherShares&) = delete;
  OtherShares& operator=(const OtherShares&) = delete;
  virtual ~OtherShares() = default;
  // Throws Error if one has failed.
  virtual void check() = 0;
  // Waits until all have done their work. Throws Error if one has failed, and Interrupted on Ctrl+C.
  virtual void finish() = 0;
};

// Returns the file of a process's part: "answers.part-2.jsonl" next to "answers.jsonl".
[[nodiscard]] std::filesystem::path part_of_journal(const std::filesystem::path& journal, std::size_t number);
// Returns the parts that are next to a journal.
[[nodiscard]] std::vector<std::filesystem::path> parts_of_journal(const std::filesystem::path& journal);
// Appends the rows of all parts next to a journal, of which it may have some, and removes the parts. To be called when
// no other process uses them; those of a run that was killed are taken by the next one.
void take_parts(Journal& journal);

}  // namespace hone
