#include "generate/ngrams.h"

#include <vector>

#include "core/characters.h"

namespace hone {

std::string normalized_words(std::string_view text) {
  const std::string lowered = lower_case(text);
  const std::string_view all = lowered;
  std::string words;
  for (std::size_t at = skip_spaces(all, 0); at < all.size(); at = skip_spaces(all, at)) {
    if (!words.empty()) words += ' ';
    while (at < all.size() && white_space_length(all, at) == 0) {
      const std::size_t next = next_code_point(all, at);
      words += all.substr(at, next - at);
      at = next;
    }
  }
  return words;
}

// Calls visit(ngram) for each run of `size_` words until it returns true. The words are separated by single spaces, so
// a run is a substring of the text.
template <class Visit>
void NgramSet::for_each(std::string_view text, const Visit& visit) const {
  const std::string words = normalized_words(text);
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < words.size();) {
    starts.push_back(at);
    const std::size_t space = words.find(' ', at);
    const std::size_t end = space == std::string::npos ? words.size() : space;
    if (starts.size() >= size_) {
      const std::size_t begin = starts[starts.size() - size_];
      if (visit(words.substr(begin, end - begin))) return;
    }
    at = end + 1;
  }
  if (!starts.empty() && starts.size() < size_) visit(words);
}

void NgramSet::add(std::string_view text) {
  for_each(text, [this](std::string ngram) {
    ngrams_.insert(std::move(ngram));
    return false;
  });
}

bool NgramSet::overlaps(std::string_view text) const {
  bool found = false;
  for_each(text, [&](const std::string& ngram) { return found = ngrams_.contains(ngram); });
  return found;
}

}  // namespace hone
