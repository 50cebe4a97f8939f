#include "text/normalizer.h"

#include <algorithm>
#include <array>

#include "core/unicode.h"
#include "text/json_fields.h"

namespace hone {
namespace {

constexpr int kDeepestNormalizer = 16;  // nesting of Sequences

std::string stripped(std::string_view text, bool left, bool right) {
  const auto is_space = [&](std::size_t at) { return properties_of(decode_utf8(text, at).value).white_space(); };
  while (left && !text.empty() && is_space(0)) text.remove_prefix(decode_utf8(text, 0).size);
  while (right && !text.empty()) {
    const std::size_t last = previous_utf8(text, text.size());
    if (!is_space(last)) break;
    text.remove_suffix(text.size() - last);
  }
  return std::string(text);
}

// Applies `change` to each character; a character that it maps to 0 is removed.
template <class Change>
std::string changed(std::string_view text, const Change& change) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = decode_utf8(text, at);
    const char32_t now = change(c);
    if (now == c) {
      out.append(text.substr(at, size));
    } else if (now != 0) {
      append_utf8(out, now);
    }
    at += size;
  }
  return out;
}

// SentencePiece's nmt rules: control characters are removed, other white space becomes spaces.
char32_t nmt(char32_t c) {
  const bool removed = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  return removed ? 0 : space ? U' ' : c;
}

}  // namespace

std::shared_ptr<const Pattern> read_pattern(const Json& json, std::string_view part, std::string_view where) {
  if (!member(json, "Regex").is_null()) return std::make_shared<const Pattern>(string_member(json, "Regex", where));
  const std::string text = string_member(json, "String", where);
  if (text.empty()) throw Error(where, text_of(part, " has an empty pattern"));
  return std::make_shared<const Pattern>(Pattern::literal(text));
}

std::string replace_matches(const Pattern& pattern, std::string_view text, std::string_view content) {
  Pattern::Search search(pattern, text);
  std::string out;
  std::size_t done = 0;
  for (std::size_t from = 0; from <= text.size();) {
    const auto match = search.find(from);
    if (!match) break;
    out.append(text.substr(done, match->begin - done)).append(content);
    done = match->end;
    from = match->end;
    if (match->end == match->begin) {  // an empty match: continue after the next character
      if (match->end == text.size()) break;
      from += decode_utf8(text, match->end).size;
    }
  }
  return out.append(text.substr(done));
}

Normalizer::Normalizer(const Json& json, std::string_view where) { add(json, where, 0); }

void Normalizer::add(const Json& json, std::string_view where, int depth) {
  if (json.is_null()) return;
  const std::string type = type_member(json, "normalizer", where);
  if (type == "Sequence") {
    const Json& parts = member(json, "normalizers");
    if (!parts.is_array() || depth >= kDeepestNormalizer)
      throw Error(where, "normalizer Sequence has no list `normalizers`");
    for (const Json& part : parts) add(part, where, depth + 1);
    return;
  }
  constexpr std::array<std::pair<std::string_view, Kind>, 10> kKinds{{{"NFC", Kind::kNfc},
                                                                      {"NFD", Kind::kNfd},
                                                                      {"NFKC", Kind::kNfkc},
                                                                      {"NFKD", Kind::kNfkd},
                                                                      {"Lowercase", Kind::kLowercase},
                                                                      {"Strip", Kind::kStrip},
                                                                      {"StripAccents", Kind::kStripAccents},
                                                                      {"Nmt", Kind::kNmt},
                                                                      {"Prepend", Kind::kPrepend},
                                                                      {"Replace", Kind::kReplace}}};
  const auto known = std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& kind) { return kind.first == type; });
  if (known == kKinds.end()) {
    throw Error(where, text_of("the normalizer ", type,
                               " is not supported (known: NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, "
                               "Prepend, Replace, Sequence)"));
  }
  Step step{.kind = known->second};
  if (step.kind == Kind::kStrip) {
    step.left = bool_member(json, "strip_left", true, where);
    step.right = bool_member(json, "strip_right", true, where);
  } else if (step.kind == Kind::kPrepend) {
    step.content = replace_invalid_utf8(string_member(json, "prepend", where));
  } else if (step.kind == Kind::kReplace) {
    step.content = replace_invalid_utf8(string_member(json, "content", where));
    step.pattern = read_pattern(member(json, "pattern"), "normalizer Replace", where);
  }
  steps_.push_back(std::move(step));
}

std::string Normalizer::apply(const Step& step, const std::string& text) {
  switch (step.kind) {
    case Kind::kNfc:
      return normalize_nfc(text);
    case Kind::kNfd:
      return normalize_nfd(text);
    case Kind::kNfkc:
      return normalize_nfkc(text);
    case Kind::kNfkd:
      return normalize_nfkd(text);
    case Kind::kLowercase:
      return to_lower_token(text);
    case Kind::kStrip:
      return stripped(text, step.left, step.right);
    case Kind::kStripAccents:
      return changed(text, [](char32_t c) { return properties_of(c).accent() ? 0 : c; });
    case Kind::kNmt:
      return changed(text, nmt);
    case Kind::kPrepend:
      return text.empty() ? text : step.content + text;
    case Kind::kReplace:
      return replace_matches(*step.pattern, text, step.content);
  }
  return text;
}

std::string Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) result = apply(step, result);
  return result;
}

}  // namespace hone
