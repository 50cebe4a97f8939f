#include "text/pattern.h"

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "text/pattern_parser.h"

namespace hone {
namespace {

constexpr std::size_t kNoMatch = static_cast<std::size_t>(-1);
constexpr int kDeepestMatch = 5'000;
// Step limits of the searches in one text; patterns of real models take some tens of steps per byte.
constexpr std::uint64_t kStepsPerText = 10'000;
constexpr std::uint64_t kStepsPerByte = 1'000;

bool holds(const std::array<std::uint64_t, 4>& bits, unsigned char byte) {
  return (bits[byte >> 6] >> (byte & 63) & 1) != 0;
}

}  // namespace

void CodePointSet::add_range(char32_t first, char32_t last) {
  for (char32_t c = first; c <= last && c < 0x80; ++c) ascii_[c >> 6] |= std::uint64_t{1} << (c & 63);
  if (last >= 0x80) ranges_.emplace_back(std::max<char32_t>(first, 0x80), last);
}

void CodePointSet::add_category(Category category) {
  categories_ |= 1U << static_cast<unsigned>(category);
  for (char32_t c = 0; c < 0x80; ++c) {
    if (properties_of(c).category() == category) ascii_[c >> 6] |= std::uint64_t{1} << (c & 63);
  }
}

void CodePointSet::add_pattern_space() {
  space_ = true;
  for (char32_t c = 0; c < 0x80; ++c) {
    if (properties_of(c).pattern_space()) ascii_[c >> 6] |= std::uint64_t{1} << (c & 63);
  }
}

void CodePointSet::add_set(const CodePointSet& other) {
  ascii_[0] |= other.ascii_[0];
  ascii_[1] |= other.ascii_[1];
  if (other.negated_ || !other.sets_.empty()) {
    sets_.push_back(other);
    return;
  }
  space_ = space_ || other.space_;
  categories_ |= other.categories_;
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
}

void CodePointSet::negate() {
  ascii_[0] = ~ascii_[0];
  ascii_[1] = ~ascii_[1];
  negated_ = !negated_;
}

void CodePointSet::add_case_variants() {
  for (char32_t c = 'a'; c <= 'z'; ++c) {
    const char32_t upper = c - 'a' + 'A';
    if (contains(c) == contains(upper)) continue;
    if (negated_) continue;
    add(c);
    add(upper);
    if (c == 's') add(0x17F);   // long s folds to s
    if (c == 'k') add(0x212A);  // the Kelvin sign folds to k
  }
}

bool CodePointSet::contains_beyond_ascii(char32_t c) const {
  for (const auto& [first, last] : ranges_) {
    if (c >= first && c <= last) return true;
  }
  if (categories_ != 0 || space_) {
    const Properties properties = properties_of(c);
    if ((categories_ >> static_cast<unsigned>(properties.category()) & 1) != 0) return true;
    if (space_ && properties.pattern_space()) return true;
  }
  return std::any_of(sets_.begin(), sets_.end(), [&](const CodePointSet& set) { return set.contains(c); });
}

bool CodePointSet::contains(char32_t c) const {
  if (c < 0x80) return contains_ascii(static_cast<unsigned char>(c));
  return contains_beyond_ascii(c) != negated_;
}

bool CodePointSet::only_ascii() const {
  return !negated_ && !space_ && categories_ == 0 && ranges_.empty() && sets_.empty();
}

Pattern::Pattern(std::string_view source) : source_(replace_invalid_utf8(source)) {
  PatternParser(*this, source_).parse();
  compute_first_bytes();
}

Pattern Pattern::literal(std::string_view text) {
  Pattern pattern;
  pattern.source_ = replace_invalid_utf8(text);
  pattern.nodes_.push_back({.kind = Kind::kAccept});
  for (std::size_t at = pattern.source_.size(); at > 0;) {
    at = previous_utf8(pattern.source_, at);
    CodePointSet set;
    set.add(decode_utf8(pattern.source_, at).value);
    pattern.sets_.push_back(set);
    pattern.nodes_.push_back({.kind = Kind::kSet,
                              .next = static_cast<int>(pattern.nodes_.size()) - 1,
                              .set = static_cast<int>(pattern.sets_.size()) - 1});
  }
  pattern.start_ = static_cast<int>(pattern.nodes_.size()) - 1;
  pattern.compute_first_bytes();
  return pattern;
}

// The targets of a node come before it, except for loops, which are assumed to start with any byte.
void Pattern::compute_first_bytes() {
  const auto merge = [](Node& node, const Node& other) {
    for (std::size_t i = 0; i < 4; ++i) node.first[i] |= other.first[i];
    node.nullable = node.nullable || other.nullable;
  };
  const auto node_at = [&](int index) -> Node& { return nodes_[static_cast<std::size_t>(index)]; };
  for (Node& node : nodes_) {
    switch (node.kind) {
      case Kind::kSet: {
        const CodePointSet& set = sets_[static_cast<std::size_t>(node.set)];
        for (unsigned byte = 0; byte < 0x80; ++byte) {
          if (set.contains_ascii(static_cast<unsigned char>(byte)))
            node.first[byte >> 6] |= std::uint64_t{1} << (byte & 63);
        }
        if (!set.only_ascii()) node.first[2] = node.first[3] = ~std::uint64_t{0};
        if (node.least == 0) merge(node, node_at(node.next));
        break;
      }
      case Kind::kChoice:
        for (const int branch : node.branches) merge(node, node_at(branch));
        break;
      case Kind::kAtomic:
        merge(node, node_at(node.branches.front()));
        if (node.nullable) merge(node, node_at(node.next));
        break;
      default:
        node.nullable = true;
        break;
    }
  }
}

class PatternMatcher {
 public:
  // `steps`: number of steps taken so far.
  PatternMatcher(const Pattern& pattern, std::string_view text, std::uint64_t& steps)
      : pattern_(pattern), text_(text), steps_(steps), most_steps_(kStepsPerText + kStepsPerByte * text.size()) {}

  [[nodiscard]] bool may_start(int index, std::size_t at) const {
    const Pattern::Node& node = pattern_.nodes_[static_cast<std::size_t>(index)];
    return node.nullable || (at < text_.size() && holds(node.first, static_cast<unsigned char>(text_[at])));
  }

  // Returns the end of a match of node `index` and everything that follows it, or kNoMatch.
  std::size_t match(int index, std::size_t at) {
    using Kind = Pattern::Kind;
    for (;;) {
      const Pattern::Node& node = pattern_.nodes_[static_cast<std::size_t>(index)];
      count(1);
      switch (node.kind) {
        case Kind::kAccept:
          return at;
        case Kind::kBegin:
          if (at != 0 && text_[at - 1] != '\n') return kNoMatch;
          break;
        case Kind::kEnd:
          if (at != text_.size() && text_[at] != '\n') return kNoMatch;
          break;
        case Kind::kSet:
          if (node.least == 1 && node.most == 1) {
            const std::size_t size = step(pattern_.sets_[static_cast<std::size_t>(node.set)], at);
            if (size == 0) return kNoMatch;
            at += size;
            break;
          }
          return match_repeated(node, at);
        case Kind::kLookAhead:
        case Kind::kNotLookAhead:
          if ((deeper(node.branches.front(), at) != kNoMatch) != (node.kind == Kind::kLookAhead)) return kNoMatch;
          break;
        case Kind::kAtomic:
          at = deeper(node.branches.front(), at);
          if (at == kNoMatch) return kNoMatch;
          break;
        case Kind::kChoice:
          return match_choice(node, at);
        case Kind::kLoop:
          return match_loop(node, at, index);
      }
      index = node.next;
    }
  }

 private:
  void count(std::uint64_t steps) {
    steps_ += steps;
    if (steps_ > most_steps_) give_up("takes too many steps");
  }
  [[noreturn]] void give_up(std::string_view why) const {
    throw Error("tokenizer pattern", text_of(why, " on this text: ", pattern_.source()));
  }

  std::size_t deeper(int index, std::size_t at) {
    if (++depth_ > kDeepestMatch) give_up("backtracks too deep");
    const std::size_t end = match(index, at);
    --depth_;
    return end;
  }

  // Returns the number of bytes of the character at `at` if the set contains it, otherwise 0.
  [[nodiscard]] std::size_t step(const CodePointSet& set, std::size_t at) const {
    if (at >= text_.size()) return 0;
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return set.contains_ascii(byte) ? 1 : 0;
    const auto [c, size] = decode_utf8(text_, at);
    return set.contains(c) ? size : 0;
  }

  std::size_t match_choice(const Pattern::Node& node, std::size_t at) {
    for (const int branch : node.branches) {
      if (!may_start(branch, at)) continue;
      if (const std::size_t end = deeper(branch, at); end != kNoMatch) return end;
    }
    return kNoMatch;
  }

  // Matches the body once more, or leaves the loop; an iteration that matched nothing ends the loop. The start of the
  // iteration is kept on this stack frame, because the body leads back to the loop node.
  std::size_t match_loop(const Pattern::Node& node, std::size_t at, int index) {
    if (loop_index_ == index && loop_begin_ == at) return deeper(node.next, at);
    const bool lazy = node.greed == Pattern::Greed::kLazy;
    if (lazy) {
      if (const std::size_t end = deeper(node.next, at); end != kNoMatch) return end;
    }
    const auto outer = std::pair(loop_index_, loop_begin_);
    loop_index_ = index;
    loop_begin_ = at;
    const std::size_t end = deeper(node.branches.front(), at);
    std::tie(loop_index_, loop_begin_) = outer;
    if (end != kNoMatch || lazy) return end;
    return deeper(node.next, at);
  }

  std::size_t match_repeated(const Pattern::Node& node, std::size_t at) {
    const CodePointSet& set = pattern_.sets_[static_cast<std::size_t>(node.set)];
    const bool lazy = node.greed == Pattern::Greed::kLazy;
    const std::uint32_t wanted = lazy ? node.least : node.most;
    std::uint32_t taken = 0;
    const std::size_t begin = at;
    std::size_t least_end = node.least == 0 ? at : kNoMatch;
    while (taken < wanted) {
      const std::size_t size = step(set, at);
      if (size == 0) break;
      at += size;
      if (++taken == node.least) least_end = at;
    }
    count((at - begin) / 4);
    if (taken < node.least) return kNoMatch;
    if (lazy) return match_lazily(node, set, at, taken);
    if (node.greed == Pattern::Greed::kPossessive) return deeper(node.next, at);
    for (;;) {
      if (may_start(node.next, at)) {
        if (const std::size_t end = deeper(node.next, at); end != kNoMatch) return end;
      }
      if (at == least_end) return kNoMatch;
      at = previous_utf8(text_, at);
      count(1);
    }
  }

  std::size_t match_lazily(const Pattern::Node& node, const CodePointSet& set, std::size_t at, std::uint32_t taken) {
    for (;;) {
      if (const std::size_t end = deeper(node.next, at); end != kNoMatch) return end;
      const std::size_t size = taken < node.most ? step(set, at) : 0;
      if (size == 0) return kNoMatch;
      at += size;
      ++taken;
    }
  }

  const Pattern& pattern_;
  std::string_view text_;
  std::uint64_t& steps_;
  std::uint64_t most_steps_;
  int depth_ = 0;
  int loop_index_ = -1;
  std::size_t loop_begin_ = 0;
};

std::optional<Pattern::Match> Pattern::Search::find(std::size_t from) {
  PatternMatcher matcher(pattern_, text_, steps_);
  for (std::size_t at = from; at <= text_.size();) {
    if (matcher.may_start(pattern_.start_, at)) {
      if (const std::size_t end = matcher.match(pattern_.start_, at); end != kNoMatch) return Match{at, end};
    }
    if (at == text_.size()) break;
    at += decode_utf8(text_, at).size;
  }
  return std::nullopt;
}

}  // namespace hone
