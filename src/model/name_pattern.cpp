#include "model/name_pattern.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"

namespace hone {
namespace {

constexpr int kMostNodes = 10'000;
constexpr int kDeepestGroup = 50;
constexpr int kMostRepetitions = 1'000;
constexpr int kUnbounded = -1;

bool is_word(unsigned char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '_';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool at_boundary(std::string_view name, std::size_t at) {
  const bool left = at > 0 && is_word(static_cast<unsigned char>(name[at - 1]));
  const bool right = at < name.size() && is_word(static_cast<unsigned char>(name[at]));
  return left != right;
}

ByteSet with_cases(const ByteSet& set) {
  ByteSet both = set;
  for (unsigned char lower = 'a'; lower <= 'z'; ++lower) {
    const auto upper = static_cast<unsigned char>(lower - 'a' + 'A');
    if (set.has(lower)) both.add(upper, upper);
    if (set.has(upper)) both.add(lower, lower);
  }
  return both;
}

}  // namespace

void ByteSet::add(unsigned char first, unsigned char last) {
  for (int byte = first; byte <= last; ++byte) {
    bits_.at(static_cast<std::size_t>(byte) >> 6) |= std::uint64_t{1} << (static_cast<unsigned>(byte) & 63);
  }
}

void ByteSet::add(const ByteSet& other) {
  for (std::size_t i = 0; i < bits_.size(); ++i) bits_.at(i) |= other.bits_.at(i);
}

void ByteSet::negate() {
  for (std::uint64_t& word : bits_) word = ~word;
}

// Recursive descent to terms, and from these to nodes, back to front: each term gets the node that follows.
class NamePatternBuilder {
 public:
  NamePatternBuilder(NamePattern& pattern, std::string_view source, std::string_view where)
      : pattern_(pattern), source_(source), where_(where) {}

  void build() {
    const Term whole = parse_choice();
    if (!at_end()) fail("a ) without its (");
    pattern_.start_ = emit(whole, node({}), 0);
    for (std::size_t i = 0; i < pattern_.nodes_.size(); ++i) link(static_cast<int>(i));
  }

 private:
  using Kind = NamePattern::Kind;

  struct Term {
    enum class What : std::uint8_t { node, sequence, choice, repetition };
    What what = What::sequence;
    Kind kind = Kind::set;  // node
    ByteSet set;
    std::vector<Term> parts;  // of a look-ahead and a repetition: one
    int least = 0;
    int most = kUnbounded;
  };

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(where_, text_of("'", source_, "' is no regular expression that hone reads: ", what, " at character ",
                                std::min(at_, source_.size()) + 1));
  }
  [[nodiscard]] bool at_end() const { return at_ >= source_.size(); }
  [[nodiscard]] char peek() const { return at_end() ? '\0' : source_[at_]; }
  bool accept(std::string_view text) {
    if (!source_.substr(std::min(at_, source_.size())).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  Term parse_choice() {
    Term choice{.what = Term::What::choice};
    do choice.parts.push_back(parse_sequence());
    while (accept("|"));
    return choice;
  }

  Term parse_sequence() {
    Term sequence;
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (accept("(?#")) {
        at_ = source_.find(')', at_);
        if (!accept(")")) fail("a comment that does not end");
        continue;
      }
      if (take_flags()) continue;
      sequence.parts.push_back(parse_repetition(parse_atom()));
    }
    return sequence;
  }

  // "(?i)" where a pattern begins.
  bool take_flags() {
    if (at_ != 0 || !source_.starts_with("(?")) return false;
    const std::size_t end = source_.find_first_not_of("aimsu", 2);
    if (end == 2 || end == std::string_view::npos || source_[end] != ')') return false;
    ignore_case_ = source_.substr(2, end - 2).find('i') != std::string_view::npos;
    at_ = end + 1;
    return true;
  }

  Term parse_repetition(Term atom) {
    Term repeated{.what = Term::What::repetition};
    if (accept("*")) {
      repeated.least = 0;
    } else if (accept("+")) {
      repeated.least = 1;
    } else if (accept("?")) {
      repeated.most = 1;
    } else if (!parse_count(repeated)) {
      return atom;
    }
    (void)accept("?");
    if (peek() == '+') fail("a possessive repetition");
    const std::size_t here = at_;
    Term more;
    if (peek() == '*' || peek() == '?' || parse_count(more)) {
      at_ = here;
      fail("a repetition of a repetition");
    }
    repeated.parts.push_back(std::move(atom));
    return repeated;
  }

  // {m}, {m,}, {,n}, {m,n}; any other { is itself.
  bool parse_count(Term& repeated) {
    const std::size_t begin = at_;
    if (!accept("{")) return false;
    const int least = parse_number();
    const bool range = accept(",");
    const int most = range ? parse_number() : least;
    if (!accept("}") || (least < 0 && most < 0)) {
      at_ = begin;
      return false;
    }
    repeated.least = std::max(least, 0);
    repeated.most = most;
    if (most != kUnbounded && most < repeated.least) fail("a count that ends before it begins");
    return true;
  }

  int parse_number() {
    int value = -1;
    while (is_digit(peek())) {
      value = std::max(value, 0) * 10 + (source_[at_++] - '0');
      if (value > kMostRepetitions) fail(text_of("more than ", kMostRepetitions, " repetitions"));
    }
    return value;
  }

  Term parse_atom() {
    const char c = peek();
    if (c == '(') return parse_group();
    if (c == '[') return of_set(parse_class());
    if (c == '\\') return parse_escaped();
    if (c == '*' || c == '+' || c == '?') fail("nothing to repeat");
    ++at_;
    if (c == '^') return of_kind(Kind::begin);
    if (c == '$') return of_kind(Kind::end);
    ByteSet set;
    if (c == '.') {
      set.add('\n', '\n');
      set.negate();
    } else {
      set.add(static_cast<unsigned char>(c), static_cast<unsigned char>(c));
    }
    return of_set(set);
  }

  Term parse_group() {
    ++at_;
    if (++depth_ > kDeepestGroup) fail(text_of("more than ", kDeepestGroup, " groups in each other"));
    const bool outer = ignore_case_;
    Term group;
    if (accept("?=")) {
      group = of_kind(Kind::ahead);
    } else if (accept("?!")) {
      group = of_kind(Kind::not_ahead);
    } else if (accept("?P<")) {
      at_ = std::min(source_.find('>', at_), source_.size());
      if (!accept(">")) fail("a name that does not end");
    } else if (accept("?i:")) {
      ignore_case_ = true;
    } else if (!accept("?:") && peek() == '?') {
      fail("a kind of group that it does not know");
    }
    group.parts.push_back(parse_choice());
    if (!accept(")")) fail("a ( without its )");
    ignore_case_ = outer;
    --depth_;
    return group;
  }

  Term parse_escaped() {
    ++at_;
    const char c = peek();
    const auto simple = [&](Kind kind) {
      ++at_;
      return of_kind(kind);
    };
    if (c == 'A') return simple(Kind::begin);
    if (c == 'Z') return simple(Kind::end);
    if (c == 'b') return simple(Kind::boundary);
    if (c == 'B') return simple(Kind::no_boundary);
    return of_set(parse_escape());
  }

  // After the backslash.
  ByteSet parse_escape() {
    if (at_end()) fail("a \\ that nothing follows");
    const char c = source_[at_++];
    ByteSet set;
    const char kind = static_cast<char>(c | 0x20);
    if (kind == 'd' || kind == 'w' || kind == 's') {
      if (kind != 's') set.add('0', '9');
      if (kind == 's') {
        set.add('\t', '\r');
        set.add(' ', ' ');
      }
      if (kind == 'w') {
        set.add('a', 'z');
        set.add('A', 'Z');
        set.add('_', '_');
      }
      if (c != kind) set.negate();
      return set;
    }
    constexpr std::string_view kNames = "ntrfv";
    constexpr std::string_view kMeant = "\n\t\r\f\v";
    const std::size_t known = kNames.find(c);
    if (known == std::string_view::npos && (is_digit(c) || is_word(static_cast<unsigned char>(c)))) {
      --at_;
      fail(is_digit(c) ? "a back reference" : "an escape that it does not know");
    }
    const auto byte = static_cast<unsigned char>(known == std::string_view::npos ? c : kMeant[known]);
    set.add(byte, byte);
    return set;
  }

  ByteSet parse_class() {
    ++at_;
    const bool negated = accept("^");
    ByteSet set;
    bool first = true;
    while (peek() != ']' || first) {
      if (at_end()) fail("a [ without its ]");
      first = false;
      if (accept("\\")) {
        set.add(parse_escape());
        continue;
      }
      const auto from = static_cast<unsigned char>(source_[at_++]);
      auto to = from;
      if (peek() == '-' && at_ + 1 < source_.size() && source_[at_ + 1] != ']') {
        ++at_;
        to = static_cast<unsigned char>(source_[at_++]);
        if (to == '\\') fail("an escape as the end of a range");
        if (to < from) fail("a range that ends before it begins");
      }
      set.add(from, to);
    }
    ++at_;
    if (ignore_case_) set = with_cases(set);
    if (negated) set.negate();
    return set;
  }

  [[nodiscard]] static Term of_kind(Kind kind) { return {.what = Term::What::node, .kind = kind}; }
  [[nodiscard]] Term of_set(const ByteSet& set) const {
    return {.what = Term::What::node, .set = ignore_case_ ? with_cases(set) : set};
  }

  int node(NamePattern::Node made) {
    std::vector<NamePattern::Node>& nodes = pattern_.nodes_;
    if (nodes.size() == kMostNodes) fail(text_of("more than ", kMostNodes, " steps"));
    const auto level = static_cast<std::size_t>(made.level);
    if (pattern_.levels_.size() <= level) pattern_.levels_.resize(level + 1);
    pattern_.levels_[level].push_back(static_cast<int>(nodes.size()));
    nodes.push_back(std::move(made));
    return static_cast<int>(nodes.size()) - 1;
  }

  int emit(const Term& term, int next, int level) {
    switch (term.what) {
      case Term::What::node: {
        int other = -1;
        if (!term.parts.empty()) other = emit(term.parts[0], node({.level = level + 1}), level + 1);
        return node({.kind = term.kind, .next = next, .other = other, .level = level, .set = term.set});
      }
      case Term::What::sequence:
        for (std::size_t i = term.parts.size(); i-- > 0;) next = emit(term.parts[i], next, level);
        return next;
      case Term::What::choice: {
        int way = emit(term.parts.back(), next, level);
        for (std::size_t i = term.parts.size() - 1; i-- > 0;) {
          way = node({.kind = Kind::fork, .next = emit(term.parts[i], next, level), .other = way, .level = level});
        }
        return way;
      }
      case Term::What::repetition:
        return emit_repetition(term, next, level);
    }
    return next;
  }

  int emit_repetition(const Term& term, int next, int level) {
    const Term& body = term.parts[0];
    if (term.most == kUnbounded) {
      const int loop = node({.kind = Kind::fork, .next = next, .level = level});
      const int begin = emit(body, loop, level);
      pattern_.nodes_[static_cast<std::size_t>(loop)].other = begin;
      next = loop;
    } else {
      const int end = next;
      for (int i = term.least; i < term.most; ++i) {
        next = node({.kind = Kind::fork, .next = end, .other = emit(body, next, level), .level = level});
      }
    }
    for (int i = 0; i < term.least; ++i) next = emit(body, next, level);
    return next;
  }

  void link(int index) {
    std::vector<NamePattern::Node>& nodes = pattern_.nodes_;
    const NamePattern::Node& from = nodes[static_cast<std::size_t>(index)];
    if (from.kind == Kind::set || from.kind == Kind::accept) return;
    const int other = from.kind == Kind::fork ? from.other : -1;
    nodes[static_cast<std::size_t>(from.next)].before.push_back(index);
    if (other >= 0) nodes[static_cast<std::size_t>(other)].before.push_back(index);
  }

  NamePattern& pattern_;
  std::string_view source_;
  std::string_view where_;
  std::size_t at_ = 0;
  bool ignore_case_ = false;
  int depth_ = 0;
};

NamePattern::NamePattern(std::string_view source, std::string_view where) {
  NamePatternBuilder(*this, source, where).build();
}

// Whether a node that takes no byte lets through at this place what goes on after it.
bool NamePattern::holds(const Node& node, std::string_view name, std::size_t at, const std::vector<char>& now) const {
  switch (node.kind) {
    case Kind::begin:
      return at == 0;
    case Kind::end:
      return at == name.size();
    case Kind::boundary:
      return at_boundary(name, at);
    case Kind::no_boundary:
      return !at_boundary(name, at);
    case Kind::ahead:
      return now[static_cast<std::size_t>(node.other)] != 0;
    case Kind::not_ahead:
      return now[static_cast<std::size_t>(node.other)] == 0;
    default:
      return true;
  }
}

// From the name's end to its begin: which nodes lead on from here to acceptance. Look-aheads, being of a higher level,
// are known before what asks for them.
bool NamePattern::fits(std::string_view name) const {
  std::vector<char> now(nodes_.size());
  std::vector<char> later(nodes_.size());
  std::vector<int> open;
  for (std::size_t at = name.size() + 1; at-- > 0;) {
    std::fill(now.begin(), now.end(), 0);
    for (std::size_t level = levels_.size(); level-- > 0;) {
      for (const int index : levels_[level]) {
        const Node& node = nodes_[static_cast<std::size_t>(index)];
        const bool takes = node.kind == Kind::set && at < name.size() &&
                           node.set.has(static_cast<unsigned char>(name[at])) &&
                           later[static_cast<std::size_t>(node.next)] != 0;
        if (takes || (node.kind == Kind::accept && (level > 0 || at == name.size()))) open.push_back(index);
      }
      while (!open.empty()) {
        const auto index = static_cast<std::size_t>(open.back());
        open.pop_back();
        if (now[index] != 0) continue;
        now[index] = 1;
        for (const int before : nodes_[index].before) {
          const Node& node = nodes_[static_cast<std::size_t>(before)];
          if (now[static_cast<std::size_t>(before)] == 0 && holds(node, name, at, now)) open.push_back(before);
        }
      }
    }
    std::swap(now, later);
  }
  return later[static_cast<std::size_t>(start_)] != 0;
}

}  // namespace hone
