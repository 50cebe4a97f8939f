// Overlap of texts in words, as open-r1's scripts/decontaminate.py finds it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>

namespace hone {

// Lower case, words joined by single spaces.
[[nodiscard]] std::string normalized_words(std::string_view text);

// All runs of `size` words of some texts; of a text of fewer words, which has no such run, the whole. (open-r1 lets
// every copy of such a text pass.)
class NgramSet {
 public:
  explicit NgramSet(std::size_t size) : size_(size) {}

  void add(std::string_view text);
  // Whether a run of `size` words of the text is one of them; a text of fewer words overlaps where it is one as a
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
