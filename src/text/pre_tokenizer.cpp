#include "text/pre_tokenizer.h"

#include <algorithm>
#include <array>

#include "core/unicode.h"
#include "text/json_fields.h"
#include "text/normalizer.h"

namespace hone {
namespace {

constexpr int kDeepestPreTokenizer = 16;  // nesting of Sequences

struct Span {
  std::string_view text;
  bool matched;
};

// Returns the matched and unmatched pieces of `text` in order; empty matches are skipped.
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

// Cuts at characters of a set; each such character is one match.
std::vector<Span> cut_at(std::string_view text, bool (*matches)(char32_t)) {
  return cut(text, [&](std::size_t from) -> std::optional<Pattern::Match> {
    while (from < text.size()) {
      const auto [c, size] = decode_utf8(text, from);
      if (matches(c)) return Pattern::Match{from, from + size};
      from += size;
    }
    return std::nullopt;
  });
}

bool is_digit(char32_t c) { return properties_of(c).numeric(); }
bool is_punctuation(char32_t c) { return properties_of(c).punctuation(); }
bool is_white_space(char32_t c) { return properties_of(c).white_space(); }

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

PreTokenizer::PreTokenizer(const Json& json, std::string_view where) {
  add(json, where, 0);
  std::vector<std::string> patterns;
  for (const Step& step : steps_) {
    if (step.kind != Kind::kPattern || step.behavior != SplitBehavior::kIsolated || step.invert || !step.is_regex)
      return;
    patterns.push_back(step.pattern->source());
  }
  scanner_ = WordScanner::of(patterns);
}

void PreTokenizer::add(const Json& json, std::string_view where, int depth) {
  if (json.is_null()) return;
  const std::string type = type_member(json, "pre_tokenizer", where);
  if (type == "Sequence") {
    const Json& parts = member(json, "pretokenizers");
    if (!parts.is_array() || depth >= kDeepestPreTokenizer)
      throw Error(where, "pre_tokenizer Sequence has no list `pretokenizers`");
    for (const Json& part : parts) add(part, where, depth + 1);
    return;
  }
  // ByteLevel rewrites pieces in its byte alphabet, so a later step would see that instead of the text.
  if (byte_level_) throw Error(where, text_of("the pre_tokenizer ", type, " after ByteLevel is not supported"));
  if (type == "ByteLevel") {
    add_byte_level(json, where);
  } else if (type == "Split") {
    add_split(json, where);
  } else if (type == "Metaspace") {
    add_metaspace(json, where);
  } else if (!add_cutter(type, json, where)) {
    throw Error(where, text_of("the pre_tokenizer ", type,
                               " is not supported (known: ByteLevel, Split, Digits, Punctuation, Metaspace, "
                               "Whitespace, WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer, FixedLength, "
                               "Sequence)"));
  }
}

// Adds a pre-tokenizer that cuts at characters; returns false for any other type.
bool PreTokenizer::add_cutter(const std::string& type, const Json& json, std::string_view where) {
  const Step white_space{.kind = Kind::kCharacters, .behavior = SplitBehavior::kRemoved, .matches = is_white_space};
  if (type == "Digits") {
    const bool individual = bool_member(json, "individual_digits", false, where);
    steps_.push_back({.kind = Kind::kCharacters,
                      .behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                      .matches = is_digit});
  } else if (type == "Punctuation") {
    const bool has_behavior = !member(json, "behavior").is_null();
    steps_.push_back(
        {.kind = Kind::kCharacters,
         .behavior = behavior_of(has_behavior ? string_member(json, "behavior", where) : "Isolated", where),
         .matches = is_punctuation});
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(white_space);
  } else if (type == "BertPreTokenizer") {
    steps_.push_back(white_space);
    steps_.push_back({.kind = Kind::kCharacters, .matches = is_punctuation});
  } else if (type == "Whitespace") {  // the pattern \w+|[^\w\s]+, with everything between its matches removed
    steps_.push_back(white_space);
    steps_.push_back({.kind = Kind::kCharacters, .behavior = SplitBehavior::kContiguous, .matches = [](char32_t c) {
                        return properties_of(c).word();
                      }});
  } else if (type == "CharDelimiterSplit") {
    const std::string delimiter = string_member(json, "delimiter", where);
    if (delimiter.empty()) throw Error(where, "pre_tokenizer CharDelimiterSplit has an empty delimiter");
    steps_.push_back(
        {.behavior = SplitBehavior::kRemoved, .pattern = std::make_shared<const Pattern>(Pattern::literal(delimiter))});
  } else if (type == "FixedLength") {
    const Json& length = member(json, "length");
    if (!length.is_null() && (!length.is_number_integer() || length < 1)) {
      throw Error(where, text_of("pre_tokenizer FixedLength has the length ", length.dump(), ", expected 1 or more"));
    }
    steps_.push_back({.kind = Kind::kFixedLength, .length = length.is_null() ? 5 : length.get<std::size_t>()});
  } else {
    return false;
  }
  return true;
}

void PreTokenizer::add_metaspace(const Json& json, std::string_view where) {
  Step step{.kind = Kind::kMetaspace, .replacement = "\u2581", .prepend = Prepend::kAlways};
  if (!member(json, "replacement").is_null()) step.replacement = string_member(json, "replacement", where);
  if (!is_valid_utf8(step.replacement) || count_code_points(step.replacement) != 1) {
    throw Error(where, "pre_tokenizer Metaspace: the replacement is not one character");
  }
  if (member(json, "prepend_scheme").is_null()) {
    if (!bool_member(json, "add_prefix_space", true, where)) step.prepend = Prepend::kNever;
  } else {
    const std::string scheme = string_member(json, "prepend_scheme", where);
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      throw Error(where, text_of("pre_tokenizer Metaspace has the prepend_scheme ", scheme,
                                 ", expected always, first or never"));
    }
    step.prepend = scheme == "always" ? Prepend::kAlways : scheme == "first" ? Prepend::kFirst : Prepend::kNever;
  }
  step.split = bool_member(json, "split", true, where);
  step.pattern = std::make_shared<const Pattern>(Pattern::literal(step.replacement));
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_byte_level(const Json& json, std::string_view where) {
  byte_level_ = true;
  if (bool_member(json, "add_prefix_space", true, where)) steps_.push_back({.kind = Kind::kPrefixSpace});
  if (bool_member(json, "use_regex", true, where)) {
    steps_.push_back({.pattern = std::make_shared<const Pattern>(kGpt2Pattern)});
  }
}

void PreTokenizer::add_split(const Json& json, std::string_view where) {
  Step step{.behavior = behavior_of(string_member(json, "behavior", where), where),
            .invert = bool_member(json, "invert", false, where)};
  step.pattern = read_pattern(member(json, "pattern"), "pre_tokenizer Split", where);
  step.is_regex = !member(member(json, "pattern"), "Regex").is_null();
  steps_.push_back(std::move(step));
}

void PreTokenizer::apply_metaspace(const Step& step, std::string_view piece, bool is_first, Pieces& pieces) {
  std::string text;
  text.reserve(piece.size() + piece.size() / 2);
  for (const char c : piece) {
    if (c == ' ') {
      text += step.replacement;
    } else {
      text += c;
    }
  }
  const bool prepends = step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && is_first);
  if (prepends && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  const std::string_view changed = pieces.changed.emplace_back(std::move(text));
  if (!step.split) {
    pieces.views.push_back(changed);
    return;
  }
  Pattern::Search search(*step.pattern, changed);
  keep(cut(changed, [&](std::size_t from) { return search.find(from); }), SplitBehavior::kMergedWithNext, pieces.views);
}

void PreTokenizer::apply(const Step& step, std::string_view piece, bool is_first, Pieces& pieces) {
  switch (step.kind) {
    case Kind::kPrefixSpace:
      if (!piece.starts_with(' ')) piece = pieces.changed.emplace_back(" " + std::string(piece));
      pieces.views.push_back(piece);
      return;
    case Kind::kMetaspace:
      apply_metaspace(step, piece, is_first, pieces);
      return;
    case Kind::kCharacters:
      keep(cut_at(piece, step.matches), step.behavior, pieces.views);
      return;
    case Kind::kFixedLength:
      for (std::size_t at = 0; at < piece.size();) {
        const std::size_t begin = at;
        for (std::size_t i = 0; i < step.length && at < piece.size(); ++i) at += decode_utf8(piece, at).size;
        pieces.views.push_back(piece.substr(begin, at - begin));
      }
      return;
    case Kind::kPattern:
      break;
  }
  Pattern::Search search(*step.pattern, piece);
  std::vector<Span> spans = cut(piece, [&](std::size_t from) { return search.find(from); });
  if (step.invert) {
    for (Span& span : spans) span.matched = !span.matched;
  }
  keep(std::move(spans), step.behavior, pieces.views);
}

void PreTokenizer::split(std::string_view text, Pieces& pieces, bool at_start) const {
  if (text.empty()) return;
  if (scanner_) return scanner_->split(text, pieces.views);
  std::vector<std::string_view> current{text};
  const char* begin = text.data();  // start of a piece that nothing precedes
  for (const Step& step : steps_) {
    pieces.views.clear();
    const char* next_begin = nullptr;
    for (const std::string_view piece : current) {
      const bool is_first = at_start && piece.data() == begin;
      const std::size_t before = pieces.views.size();
      apply(step, piece, is_first, pieces);
      const bool changes = step.kind == Kind::kPrefixSpace || step.kind == Kind::kMetaspace;
      if (is_first && changes && pieces.views.size() > before) next_begin = pieces.views[before].data();
    }
    if (next_begin != nullptr) begin = next_begin;
    current.swap(pieces.views);
  }
  pieces.views = std::move(current);
}

}  // namespace hone
