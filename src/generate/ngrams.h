// Finds texts that share runs of words, as in scripts/decontaminate.py of open-r1.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>

namespace hone {

// Returns the text in lower case with its words separated by single spaces.
[[nodiscard]] std::string normalized_words(std::string_view text);

// Set of all runs of `size` words (n-grams) of some texts. A shorter text is stored as a whole; open-r1 does not store
// it and so does not find copies of it.
class NgramSet {
 public:
  explicit NgramSet(std::size_t size) : size_(size) {}

  void add(std::string_view text);
  // Returns true if a run of `size` words of the text is in the set. A shorter text overlaps if it is in the set as a
  // whole.
  [[nodiscard]] bool overlaps(std::string_view text) const;
  [[nodiscard]] std::size_t count() const { return ngrams_.size(); }

 private:
  template <class Visit>
  void for_each(std::string_view text, const Visit& visit) const;

  std::size_t size_;
  std::unordered_set<std::string> ngrams_;
};

}  // namespace hone
