#include "text/pre_tokenizer.h"

#include <algorithm>
#include <array>

#include "text/json_fields.h"

namespace hone {
namespace {

constexpr int kDeepest = 16;  // Sequences within Sequences

struct Span {
  std::string_view text;
  bool matched;
};

// The pieces of `text`, matched and not, in order; empty matches are passed over.
template <class Find>
std::vector<Span> cut(std::string_view text, const Find& find) {
  std::vector<Span> spans;
  std::size_t done = 0;
  std::size_t from = 0;
  while (from <= text.size()) {
    const std::optional<Pattern::Match> match = find(from);
    if (!match) break;
    if (match->end == match->begin) {
      if (match->end == text.size()) break;
      from = match->end + decode_utf8(text, match->end).size;
      continue;
    }
    if (match->begin > done) spans.push_back({text.substr(done, match->begin - done), false});
    spans.push_back({text.substr(match->begin, match->end - match->begin), true});
    done = from = match->end;
  }
  if (done < text.size()) spans.push_back({text.substr(done), false});
  return spans;
}

std::string_view joined(std::string_view a, std::string_view b) { return {a.data(), a.size() + b.size()}; }

void keep(std::vector<Span> spans, SplitBehavior behavior, std::vector<std::string_view>& out) {
  if (behavior == SplitBehavior::kMergedWithNext) std::reverse(spans.begin(), spans.end());
  const std::size_t first = out.size();
  bool previous = false;
  for (const Span& span : spans) {
    const bool has_last = out.size() > first;
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (!span.matched) out.push_back(span.text);
        break;
      case SplitBehavior::kIsolated:
        out.push_back(span.text);
        break;
      case SplitBehavior::kContiguous:
        if (has_last && span.matched == previous) {
          out.back() = joined(out.back(), span.text);
        } else {
          out.push_back(span.text);
        }
        break;
      case SplitBehavior::kMergedWithPrevious:
      case SplitBehavior::kMergedWithNext:
        if (has_last && span.matched && !previous) {
          const bool next = behavior == SplitBehavior::kMergedWithNext;
          out.back() = next ? joined(span.text, out.back()) : joined(out.back(), span.text);
        } else {
          out.push_back(span.text);
        }
        break;
    }
    previous = span.matched;
  }
  if (behavior == SplitBehavior::kMergedWithNext) {
    std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
  }
}

std::optional<Pattern::Match> find_digit(std::string_view text, std::size_t from) {
  while (from < text.size()) {
    const auto [c, size] = decode_utf8(text, from);
    if (properties_of(c).numeric()) return Pattern::Match{from, from + size};
    from += size;
  }
  return std::nullopt;
}

SplitBehavior behavior_of(const std::string& name, std::string_view where) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames{{
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  throw Error(where, text_of("pre_tokenizer Split has the unknown behavior ", name));
}

}  // namespace

Normalizer::Normalizer(const Json& json, std::string_view where) { add(json, where, 0); }

void Normalizer::add(const Json& json, std::string_view where, int depth) {
  if (json.is_null()) return;
  const std::string type = type_member(json, "normalizer", where);
  if (type == "NFC") {
    steps_.push_back(Step::kNfc);
  } else if (type == "NFD") {
    steps_.push_back(Step::kNfd);
  } else if (type == "Sequence") {
    const Json& parts = member(json, "normalizers");
    if (!parts.is_array() || depth >= kDeepest) throw Error(where, "normalizer Sequence has no list normalizers");
    for (const Json& part : parts) add(part, where, depth + 1);
  } else {
    throw Error(where, text_of("the normalizer ", type, " is not supported (known: NFC, NFD, Sequence)"));
  }
}

std::string Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const Step step : steps_) result = step == Step::kNfc ? normalize_nfc(result) : normalize_nfd(result);
  return result;
}

PreTokenizer::PreTokenizer(const Json& json, std::string_view where) { add(json, where, 0); }

void PreTokenizer::add(const Json& json, std::string_view where, int depth) {
  if (json.is_null()) return;
  const std::string type = type_member(json, "pre_tokenizer", where);
  if (type == "Sequence") {
    const Json& parts = member(json, "pretokenizers");
    if (!parts.is_array() || depth >= kDeepest) throw Error(where, "pre_tokenizer Sequence has no list pretokenizers");
    for (const Json& part : parts) add(part, where, depth + 1);
    return;
  }
  // ByteLevel rewrites its pieces in its own alphabet; what came after it would see that, not the text.
  if (byte_level_) throw Error(where, text_of("the pre_tokenizer ", type, " after ByteLevel is not supported"));
  if (type == "ByteLevel") {
    add_byte_level(json, where);
  } else if (type == "Split") {
    add_split(json, where);
  } else if (type == "Digits") {
    steps_.push_back(
        {.kind = Step::Kind::kDigits, .individual_digits = bool_member(json, "individual_digits", false, where)});
  } else {
    throw Error(where,
                text_of("the pre_tokenizer ", type, " is not supported (known: ByteLevel, Split, Digits, Sequence)"));
  }
}

void PreTokenizer::add_byte_level(const Json& json, std::string_view where) {
  byte_level_ = true;
  if (bool_member(json, "add_prefix_space", true, where)) steps_.push_back({.kind = Step::Kind::kPrefixSpace});
  if (bool_member(json, "use_regex", true, where)) {
    steps_.push_back({.pattern = std::make_shared<const Pattern>(kGpt2Pattern)});
  }
}

void PreTokenizer::add_split(const Json& json, std::string_view where) {
  Step step{.behavior = behavior_of(string_member(json, "behavior", where), where),
            .invert = bool_member(json, "invert", false, where)};
  const Json& pattern = member(json, "pattern");
  if (!member(pattern, "Regex").is_null()) {
    step.pattern = std::make_shared<const Pattern>(string_member(pattern, "Regex", where));
  } else {
    const std::string text = string_member(pattern, "String", where);
    if (text.empty()) throw Error(where, "pre_tokenizer Split has an empty pattern");
    step.pattern = std::make_shared<const Pattern>(Pattern::literal(text));
  }
  steps_.push_back(std::move(step));
}

void PreTokenizer::apply(const Step& step, std::string_view piece, Pieces& pieces) {
  if (step.kind == Step::Kind::kPrefixSpace) {
    if (!piece.starts_with(' ')) piece = pieces.changed.emplace_back(" " + std::string(piece));
    pieces.views.push_back(piece);
    return;
  }
  if (step.kind == Step::Kind::kDigits) {
    const auto behavior = step.individual_digits ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    keep(cut(piece, [&](std::size_t from) { return find_digit(piece, from); }), behavior, pieces.views);
    return;
  }
  Pattern::Search search(*step.pattern, piece);
  std::vector<Span> spans = cut(piece, [&](std::size_t from) { return search.find(from); });
  if (step.invert) {
    for (Span& span : spans) span.matched = !span.matched;
  }
  keep(std::move(spans), step.behavior, pieces.views);
}

void PreTokenizer::split(std::string_view text, Pieces& pieces) const {
  if (text.empty()) return;
  std::vector<std::string_view> current{text};
  for (const Step& step : steps_) {
    pieces.views.clear();
    for (const std::string_view piece : current) apply(step, piece, pieces);
    current.swap(pieces.views);
  }
  pieces.views = std::move(current);
}

}  // namespace hone
