#include "text/pattern_parser.h"

#include <limits>
#include <ranges>

#include "core/error.h"

namespace hone {
namespace {

constexpr std::uint32_t kUnbounded = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kMostRepeats = 1000;  // upper limit of {m,n} on a set
constexpr std::uint32_t kMostCopies = 32;     // upper limit of {m,n} on a group, which is unrolled
constexpr std::size_t kMostNodes = 20'000;

}  // namespace

struct PatternParser::Element {
  Pattern::Kind kind = Pattern::Kind::kSet;  // kChoice: a group
  Pattern::Greed greed = Pattern::Greed::kGreedy;
  std::uint32_t least = 1, most = 1;
  CodePointSet set;
  Alternatives body;
};

PatternParser::PatternParser(Pattern& pattern, std::string_view source) : pattern_(pattern), source_(source) {}

void PatternParser::parse() {
  const Alternatives alternatives = parse_alternatives();
  if (!at_end()) fail("an unmatched )");
  pattern_.start_ = emit(alternatives, add_node({.kind = Pattern::Kind::kAccept}));
}

void PatternParser::fail(std::string_view what) const {
  throw Error("tokenizer pattern", text_of("unsupported or invalid at byte ", at_, ": ", what, ", in ", source_));
}

char PatternParser::peek(std::size_t offset) const {
  return at_ + offset < source_.size() ? source_[at_ + offset] : '\0';
}

bool PatternParser::accept(std::string_view text) {
  if (source_.substr(at_, text.size()) != text) return false;
  at_ += text.size();
  return true;
}

char32_t PatternParser::next_code_point() {
  if (at_end()) fail("unexpected end of the pattern");
  const auto [c, size] = decode_utf8(source_, at_);
  at_ += size;
  return c;
}

PatternParser::Alternatives PatternParser::parse_alternatives() {
  if (++depth_ > kDeepestGroup) fail("groups nested too deep");
  Alternatives alternatives;
  do alternatives.push_back(parse_sequence());
  while (accept("|"));
  --depth_;
  return alternatives;
}

PatternParser::Sequence PatternParser::parse_sequence() {
  Sequence sequence;
  while (!at_end() && peek() != '|' && peek() != ')') {
    Element element = parse_atom();
    parse_repetition(element);
    sequence.push_back(std::move(element));
  }
  return sequence;
}

PatternParser::Element PatternParser::parse_atom() {
  Element element;
  if (accept("(")) return parse_group();
  if (accept("^")) {
    element.kind = Pattern::Kind::kBegin;
    return element;
  }
  if (accept("$")) {
    element.kind = Pattern::Kind::kEnd;
    return element;
  }
  if (accept("[")) {
    element.set = parse_class();
  } else if (accept("\\")) {
    element.set = parse_escape(false);
  } else if (accept(".")) {
    element.set.add('\n');
    element.set.negate();
  } else {
    const char32_t c = next_code_point();
    if (c == '*' || c == '+' || c == '?') fail("nothing to repeat");
    element.set.add(c);
  }
  if (ignore_case_) element.set.add_case_variants();
  return element;
}

PatternParser::Element PatternParser::parse_group() {
  Element element{.kind = Pattern::Kind::kChoice};
  const bool outer_case = ignore_case_;
  if (accept("?i:")) {
    ignore_case_ = true;
  } else if (accept("?=")) {
    element.kind = Pattern::Kind::kLookAhead;
  } else if (accept("?!")) {
    element.kind = Pattern::Kind::kNotLookAhead;
  } else if (accept("?>")) {
    element.kind = Pattern::Kind::kAtomic;
  } else if (!accept("?:") && peek() == '?') {
    fail(text_of("the group (", source_.substr(at_, 3)));
  }
  element.body = parse_alternatives();
  if (!accept(")")) fail("a group without its )");
  ignore_case_ = outer_case;
  return element;
}

void PatternParser::parse_repetition(Element& element) {
  bool counted = false;
  if (accept("*")) {
    element.least = 0, element.most = kUnbounded;
  } else if (accept("+")) {
    element.least = 1, element.most = kUnbounded;
  } else if (accept("?")) {
    element.least = 0, element.most = 1;
  } else if (peek() == '{' && parse_count(element)) {
    counted = true;
  } else {
    return;
  }
  using Pattern::Kind::kChoice, Pattern::Kind::kSet, Pattern::Kind::kAtomic;
  if (element.kind != kSet && element.kind != kChoice && element.kind != kAtomic) fail("repetition of an assertion");
  if (accept("?")) {
    if (counted && element.least == element.most) fail("{n}?");
    element.greed = Pattern::Greed::kLazy;
  } else if (peek() == '+' && !counted) {
    ++at_;
    element.greed = Pattern::Greed::kPossessive;
  }
  if (peek() == '*' || peek() == '+' || peek() == '?' || (peek() == '{' && counted)) fail("repetition of a repetition");
}

bool PatternParser::parse_count(Element& element) {
  const std::size_t begin = at_;
  const auto number = [&]() -> std::optional<std::uint32_t> {
    std::uint32_t value = 0;
    const std::size_t first = at_;
    while (peek() >= '0' && peek() <= '9' && at_ - first < 6)
      value = value * 10 + static_cast<std::uint32_t>(source_[at_++] - '0');
    return at_ == first ? std::nullopt : std::optional(value);
  };
  ++at_;
  const auto least = number();
  std::optional<std::uint32_t> most = least;
  const bool range = accept(",");
  if (range) most = number();
  if ((!least && !most) || !accept("}")) {
    at_ = begin;
    return false;  // a literal brace
  }
  element.least = least.value_or(0);
  element.most = range && !most ? kUnbounded : *most;
  const bool too_many = element.least > kMostRepeats || (element.most != kUnbounded && element.most > kMostRepeats);
  if (element.most < element.least || too_many) fail("a repetition count");
  return true;
}

int PatternParser::add_node(Pattern::Node node) {
  if (pattern_.nodes_.size() >= kMostNodes) fail("the pattern is too large");
  pattern_.nodes_.push_back(std::move(node));
  return static_cast<int>(pattern_.nodes_.size()) - 1;
}

int PatternParser::add_set(const CodePointSet& set) {
  pattern_.sets_.push_back(set);
  return static_cast<int>(pattern_.sets_.size()) - 1;
}

int PatternParser::emit(const Alternatives& alternatives, int next) {
  if (alternatives.size() == 1) return emit(alternatives.front(), next);
  Pattern::Node choice{.kind = Pattern::Kind::kChoice};
  for (const Sequence& sequence : alternatives) choice.branches.push_back(emit(sequence, next));
  return add_node(std::move(choice));
}

int PatternParser::emit(const Sequence& sequence, int next) {
  for (const auto& element : std::views::reverse(sequence)) next = emit(element, next);
  return next;
}

int PatternParser::emit(const Element& element, int next) {
  using Pattern::Kind::kBegin, Pattern::Kind::kEnd, Pattern::Kind::kSet, Pattern::Kind::kAccept;
  switch (element.kind) {
    case kSet:
      return add_node({.kind = kSet,
                       .greed = element.greed,
                       .next = next,
                       .set = add_set(element.set),
                       .least = element.least,
                       .most = element.most});
    case kBegin:
    case kEnd:
      return add_node({.kind = element.kind, .next = next});
    case Pattern::Kind::kLookAhead:
    case Pattern::Kind::kNotLookAhead: {
      const int body = emit(element.body, add_node({.kind = kAccept}));
      return add_node({.kind = element.kind, .next = next, .branches = {body}});
    }
    default:
      return emit_group(element, next);
  }
}

// Emits a group: {m,n} is unrolled, an open upper bound becomes a loop; a possessive or atomic group matches
// separately, without backtracking into it.
int PatternParser::emit_group(const Element& element, int next) {
  const bool atomic = element.kind == Pattern::Kind::kAtomic || element.greed == Pattern::Greed::kPossessive;
  const bool lazy = element.greed == Pattern::Greed::kLazy;
  const bool open = element.most == kUnbounded;
  if (element.least > kMostCopies || (!open && element.most > kMostCopies)) fail("a group repeated too often");
  int at = atomic ? add_node({.kind = Pattern::Kind::kAccept}) : next;
  const auto optional = [&](int body, int after) {
    return add_node(
        {.kind = Pattern::Kind::kChoice, .branches = lazy ? std::vector{after, body} : std::vector{body, after}});
  };
  if (open) {
    const int loop = add_node({.kind = Pattern::Kind::kLoop, .greed = element.greed, .next = at});
    const int body = emit(element.body, loop);
    pattern_.nodes_[static_cast<std::size_t>(loop)].branches = {body};
    at = loop;
  } else {
    const int after = at;
    for (std::uint32_t i = element.least; i < element.most; ++i) at = optional(emit(element.body, at), after);
  }
  for (std::uint32_t i = 0; i < element.least; ++i) at = emit(element.body, at);
  if (!atomic) return at;
  return add_node({.kind = Pattern::Kind::kAtomic, .next = next, .branches = {at}});
}

}  // namespace hone
